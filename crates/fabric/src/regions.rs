//! What this rank has registered, by number: where notices find words and bells.
//!
//! # Model
//!
//! A word counts what has come of one queue, and each quantum has its number. One whose number is not the next is *early*:
//! it has overtaken another, or that one was lost, with a connection for example. It is kept until those before it have
//! come; so nobody takes one epoch's signal for another's, whatever the network orders, and a signal that is lost is
//! missing in the count for ever, which is how its origin finds out.
//!
//! A signal whose data came in [stripes](crate::notice::Stripe), each with a notice, by ways that nothing orders, has come
//! when all of them have. Whoever hears the last one has synchronised with those who heard the others, by the table's
//! lock: so its add to the word publishes what all have brought.

use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Keep, NicError};
use tidegate_words::{Bell, Word};

use crate::lock;
use crate::notice::{Notice, Stripe};

/// Registered memory of this rank.
struct Region {
    base: usize,
    bytes: usize,
    _keep: Keep,
}

/// The table. No number is given twice.
#[derive(Default)]
pub(crate) struct Regions(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// By their numbers: what a notice names is looked up on its way to who waits for it.
    regions: Vec<(u32, Region)>,
    next: u32,
    early: Vec<Early>,
    /// Signals of which some stripes have come, and which.
    striped: Vec<(Early, u32)>,
}

/// Where the region of a number stands.
fn find(regions: &[(u32, Region)], number: u32) -> Option<usize> {
    regions.binary_search_by_key(&number, |one| one.0).ok()
}

/// A quantum that is not the next.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Early {
    region: u32,
    offset: usize,
    number: u64,
}

/// A number in the table, until it is dropped.
pub(crate) struct Numbered {
    table: Weak<Regions>,
    pub(crate) number: u32,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let mut inner = lock(&table.0);
            inner.early.retain(|early| early.region != self.number);
            inner.striped.retain(|(one, _)| one.region != self.number);
            let at = find(&inner.regions, self.number);
            let region = at.map(|at| inner.regions.remove(at));
            drop(inner);
            // Outside of the lock: it may be the last to keep the memory.
            drop(region);
        }
    }
}

impl Regions {
    /// Gives memory a number.
    pub(crate) fn add(
        self: &Arc<Self>,
        base: *mut u8,
        bytes: usize,
        keep: Keep,
    ) -> Result<Numbered, NicError> {
        let mut table = lock(&self.0);
        let number = table.next;
        if number >= Notice::REGIONS {
            return Err(NicError::Exhausted {
                nic: "fabric",
                what: "registrations",
                detail: format!("{number} were made in the life of this endpoint"),
            });
        }
        table.next += 1;
        let region = Region {
            base: base.expose_provenance(),
            bytes,
            _keep: keep,
        };
        table.regions.push((number, region));
        Ok(Numbered {
            table: Arc::downgrade(self),
            number,
        })
    }

    /// Does what a notice says. `false` if it names what is not there: the registration has ended, or a peer is out of its mind.
    pub(crate) fn hear(&self, notice: Notice) -> bool {
        let mut table = lock(&self.0);
        let Table {
            regions,
            early,
            striped,
            ..
        } = &mut *table;
        let region = |number: u32| find(regions, number).map(|at| &regions[at].1);
        let (Some(of_word), Some(of_bell)) = (region(notice.word), region(notice.bell)) else {
            return false;
        };
        let inside = |region: &Region, offset: usize, bytes: usize| {
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= region.bytes)
                && (region.base + offset).is_multiple_of(align_of::<Word>())
        };
        let other = match notice.further {
            None => Some(None),
            Some((further, number)) => {
                let offset = notice.offset.checked_add_signed(further);
                offset.map(|offset| Some((offset, number)))
            }
        };
        let Some(other) = other else { return false };
        if notice.stripe.is_some_and(|stripe| !stripe.is_one()) {
            return false;
        }
        let words = || {
            [Some((notice.offset, notice.number)), other]
                .into_iter()
                .flatten()
        };
        if !words().all(|(offset, _)| inside(of_word, offset, size_of::<Word>()))
            || !inside(of_bell, 0, size_of::<Bell>())
            || of_bell.base % align_of::<Bell>() != 0
        {
            return false;
        }
        // SAFETY: it lies within registered memory, which the table keeps while it is locked, and is aligned;
        // `NicQueue::prepare` promised the origin's caller a bell there. All bytes are some bell, and it is only
        // accessed atomically.
        let bell: &Bell = unsafe { &*std::ptr::with_exposed_provenance(of_bell.base) };
        for (offset, number) in words() {
            // SAFETY: as above, of a word.
            let word: &Word = unsafe { &*std::ptr::with_exposed_provenance(of_word.base + offset) };
            if notice.poison {
                word.poison();
                continue;
            }
            let one = Early {
                region: notice.word,
                offset,
                number,
            };
            come(word, one, notice.stripe, early, striped);
        }
        if notice.poison {
            bell.wake_all();
        } else {
            bell.ring();
        }
        true
    }
}

/// A stripe of a signal has come. Whether it was the last one.
fn all_have_come(one: Early, stripe: Stripe, striped: &mut Vec<(Early, u32)>) -> bool {
    let all = (1 << stripe.of) - 1;
    let this = 1 << stripe.index;
    let at = striped.iter().position(|(each, _)| *each == one);
    let at = at.unwrap_or_else(|| {
        striped.push((one, 0));
        striped.len() - 1
    });
    let came = &mut striped[at].1;
    if *came & this != 0 {
        tracing::warn!("a part of a signal has come twice");
    }
    *came |= this;
    let last = *came == all;
    if last {
        striped.swap_remove(at);
    }
    last
}

/// Adds a quantum to a word, and those after it that have come before; or keeps it, if it is early, or stripes of it have
/// not come.
fn come(
    word: &Word,
    one: Early,
    stripe: Option<Stripe>,
    early: &mut Vec<Early>,
    striped: &mut Vec<(Early, u32)>,
) {
    // Nobody else adds to it, and the table is locked.
    let next = || (word.load() & !POISON) / QUANTUM % Notice::NUMBERS;
    let ahead = (one.number + Notice::NUMBERS - next()) % Notice::NUMBERS;
    if ahead == Notice::NUMBERS - 1 || early.contains(&one) {
        tracing::warn!("a signal has come twice");
        return;
    }
    if stripe.is_some_and(|stripe| !all_have_come(one, stripe, striped)) {
        return;
    }
    if ahead > 0 {
        early.push(one);
        return;
    }
    word.add(QUANTUM);
    let wanted = |each: &Early, number| *each == Early { number, ..one };
    while let Some(at) = early.iter().position(|each| wanted(each, next())) {
        early.swap_remove(at);
        word.add(QUANTUM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(number: u64) -> Early {
        Early {
            region: 1,
            offset: 8,
            number: number % Notice::NUMBERS,
        }
    }

    fn whole(word: &Word, one: Early, early: &mut Vec<Early>) {
        come(word, one, None, early, &mut Vec::new());
    }

    #[test]
    fn a_signal_that_overtakes_waits_for_those_before() {
        let (word, mut early) = (Word::new(0), Vec::new());
        for (number, count) in [(0, 1), (2, 1), (1, 3), (3, 4), (5, 4), (6, 4), (4, 7)] {
            whole(&word, one(number), &mut early);
            assert_eq!(word.load(), count * QUANTUM, "{number}");
        }
        assert!(early.is_empty());
    }

    #[test]
    fn no_signal_stands_for_one_that_is_lost() {
        let (word, mut early) = (Word::new(0), Vec::new());
        for number in [0, 2, 3] {
            whole(&word, one(number), &mut early);
            assert_eq!(word.load(), QUANTUM);
        }
        word.poison();
        whole(&word, one(1), &mut early);
        assert_eq!(word.load(), (4 * QUANTUM) | POISON);
    }

    #[test]
    fn a_signal_in_stripes_comes_with_the_last_of_them() {
        let (word, mut early, mut striped) = (Word::new(0), Vec::new(), Vec::new());
        let mut stripe = |number, index, count| {
            let stripe = Some(Stripe { index, of: 3 });
            come(&word, one(number), stripe, &mut early, &mut striped);
            assert_eq!(word.load(), count * QUANTUM, "{number}, {index}");
        };
        // Any one first, and the next signal's before this one's; none counts twice.
        for (number, index, count) in [
            (0, 2, 0),
            (0, 0, 0),
            (1, 1, 0),
            (1, 1, 0),
            (0, 0, 0),
            (1, 0, 0),
            (1, 2, 0),
            (0, 1, 2),
            (2, 0, 2),
            (2, 1, 2),
            // A stripe of a signal that has come is no part of a later one.
            (1, 1, 2),
            (2, 2, 3),
        ] {
            stripe(number, index, count);
        }
        assert!(early.is_empty() && striped.is_empty());
    }

    #[test]
    fn words_have_early_ones_of_their_own_and_none_counts_twice() {
        let (word, other, mut early) = (Word::new(0), Word::new(0), Vec::new());
        let of_other = |number| Early {
            offset: 16,
            ..one(number)
        };
        whole(&word, one(1), &mut early);
        whole(&word, one(1), &mut early);
        whole(&other, of_other(0), &mut early);
        whole(&other, of_other(0), &mut early);
        assert_eq!((word.load(), other.load()), (0, QUANTUM));
        whole(&word, one(0), &mut early);
        assert_eq!((word.load(), other.load()), (2 * QUANTUM, QUANTUM));
        assert!(early.is_empty());
    }
}
