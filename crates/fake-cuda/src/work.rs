//! Enqueued work, and the work that it follows.
//!
//! # Model
//!
//! A piece of work has a number, and follows others. It may begin when each of them is over. If it follows one *early*,
//! it may begin when all blocks of that one's grid have allowed it. Work that is over is forgotten: an unknown number
//! means work that is over. So a stream is no more than the numbers that its next work follows.

use std::collections::HashMap;
use std::sync::Arc;

use crate::args::Launch;

/// The action of a piece of work.
#[derive(Clone)]
pub(crate) enum What {
    /// Nothing. It stands for the end of the work that it follows.
    Nothing,
    Grid(Arc<Launch>),
    /// Copies: addresses, and the number of bytes.
    Copy(usize, usize, usize),
    /// Writes: an address, and the bytes.
    Write(usize, Arc<[u8]>),
    /// Fills: address, value, the value's bytes, and how often it is repeated.
    Fill(usize, u32, usize, usize),
    /// Calls a function of the host, with this argument.
    Call(unsafe extern "C" fn(usize), usize),
    Words(Arc<[Word]>),
    /// Frees memory of a pool.
    Free(usize),
    /// Sets the time of an event.
    Stamp(usize),
}

/// An operation on a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    Write {
        at: usize,
        value: u64,
        wide: bool,
    },
    Wait {
        at: usize,
        value: u64,
        wide: bool,
        how: u32,
    },
}

/// A number of work.
pub(crate) type Number = u64;

struct Work {
    /// Until it begins.
    what: Option<What>,
    /// How many pieces still keep it from beginning.
    missing: usize,
    /// How many of the pieces that it follows are not over.
    unfinished: usize,
    /// Whether all blocks of its grid allow the next one to begin.
    lets: bool,
    /// The pieces that follow it, and whether early.
    followers: Vec<(Number, bool)>,
}

/// All work that is not over.
#[derive(Default)]
pub(crate) struct Works {
    works: HashMap<Number, Work>,
    last: Number,
    /// The pieces that may begin.
    ready: Vec<Number>,
}

impl Works {
    /// Adds work that follows others; it follows those of `early` early.
    pub(crate) fn add(&mut self, what: What, after: &[Number], early: &[Number]) -> Number {
        self.last += 1;
        let number = self.last;
        let (mut missing, mut unfinished) = (0, 0);
        let after = after.iter().map(|other| (*other, false));
        for (other, early) in after.chain(early.iter().map(|other| (*other, true))) {
            let Some(other) = self.works.get_mut(&other) else {
                continue;
            };
            other.followers.push((number, early));
            unfinished += 1;
            missing += usize::from(!(early && other.lets));
        }
        if missing == 0 {
            self.ready.push(number);
        }
        let work = Work {
            what: Some(what),
            missing,
            unfinished,
            lets: false,
            followers: Vec::new(),
        };
        self.works.insert(number, work);
        number
    }

    pub(crate) fn is_over(&self, number: Number) -> bool {
        !self.works.contains_key(&number)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the pieces that may begin now, in the order in which they became ready.
    pub(crate) fn begin(&mut self) -> Vec<(Number, What)> {
        let ready = std::mem::take(&mut self.ready);
        let begun = ready.into_iter().filter_map(|number| {
            let what = self.works.get_mut(&number)?.what.take()?;
            Some((number, what))
        });
        begun.collect()
    }

    /// Whether everything before it is over.
    pub(crate) fn is_next(&self, number: Number) -> bool {
        self.works
            .get(&number)
            .is_none_or(|work| work.unfinished == 0)
    }

    /// Notes that all blocks of a grid allow the next one to begin.
    pub(crate) fn lets(&mut self, number: Number) {
        let Some(work) = self.works.get_mut(&number) else {
            return;
        };
        if std::mem::replace(&mut work.lets, true) {
            return;
        }
        for (follower, early) in work.followers.clone() {
            if early {
                self.miss_less(follower);
            }
        }
    }

    /// Removes a piece that is over.
    pub(crate) fn end(&mut self, number: Number) {
        let Some(work) = self.works.remove(&number) else {
            return;
        };
        for (follower, early) in work.followers {
            if let Some(follower) = self.works.get_mut(&follower) {
                follower.unfinished -= 1;
            }
            if !(early && work.lets) {
                self.miss_less(follower);
            }
        }
    }

    fn miss_less(&mut self, number: Number) {
        if let Some(work) = self.works.get_mut(&number) {
            work.missing -= 1;
            if work.missing == 0 {
                self.ready.push(number);
            }
        }
    }

    /// Describes all work, one piece in each line: whether it has begun, and what it follows.
    pub(crate) fn describe(&self) -> String {
        let mut numbers: Vec<_> = self.works.keys().copied().collect();
        numbers.sort_unstable();
        let mut text = String::new();
        for number in numbers {
            let work = &self.works[&number];
            let what = match &work.what {
                None => "begun",
                Some(What::Nothing) => "an end",
                Some(What::Grid(launch)) => &launch.function.entry.name,
                Some(What::Copy(..) | What::Write(..) | What::Fill(..)) => "a copy",
                Some(What::Call(..)) => "a call",
                Some(What::Words(_)) => "words",
                Some(What::Free(_)) => "memory",
                Some(What::Stamp(_)) => "an event",
            };
            let follows = |(other, work): (&Number, &Work)| {
                let early = work
                    .followers
                    .iter()
                    .find(|(follower, _)| *follower == number)?
                    .1;
                Some(format!("{other}{}", if early { " early" } else { "" }))
            };
            let follows: Vec<_> = self.works.iter().filter_map(follows).collect();
            text += &format!("{number}: {what}, behind {follows:?}, lets {}\n", work.lets);
        }
        text
    }

    /// Drops all work, because the device is lost.
    pub(crate) fn clear(&mut self) {
        self.works.clear();
        self.ready.clear();
    }
}
