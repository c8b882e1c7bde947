//! What this rank has registered, by number: where notices find words and bells.
//!
//! # Model
//!
//! A word counts what has come of one queue, and each quantum has its number. One whose number is not the next is *early*:
//! it has overtaken another, or that one was lost, with a connection for example. It is kept until those before it have
//! come; so nobody takes one epoch's signal for another's, whatever the network orders, and a signal that is lost is
//! missing in the count for ever, which is how its origin finds out.
//!
//! A signal whose data come in *parts*, each with a notice that says how many there are, by ways that nothing orders, has
//! come when so many have. Whoever hears the last one has synchronised with those who heard the others, by the table's
//! lock: so its add to the word publishes what all have brought.

use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Keep, NicError};
use tidegate_hal::tell;
use tidegate_words::{Bell, Word};

use crate::lock;
use crate::notice::Notice;

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
    /// Signals of which some parts have come, and how many.
    begun: Vec<(Early, u32)>,
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
            inner.begun.retain(|(one, _)| one.region != self.number);
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
            begun,
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
        let mut added = false;
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
            added |= come(word, one, notice.one_of, early, begun);
        }
        if notice.poison {
            bell.wake_all();
        } else if added {
            bell.ring();
        }
        true
    }
}

/// One of so many parts of a signal has come. Whether it was the last one.
fn all_have_come(one: Early, parts: u32, begun: &mut Vec<(Early, u32)>) -> bool {
    let at = begun.iter().position(|(each, _)| *each == one);
    let at = at.unwrap_or_else(|| {
        begun.push((one, 0));
        begun.len() - 1
    });
    begun[at].1 += 1;
    let all = begun[at].1 == parts;
    if all {
        begun.swap_remove(at);
    }
    all
}

/// Adds a quantum to a word, and those after it that have come before; or keeps it, if it is early, or parts of it have
/// not come. Whether it has added.
fn come(
    word: &Word,
    one: Early,
    one_of: Option<u32>,
    early: &mut Vec<Early>,
    begun: &mut Vec<(Early, u32)>,
) -> bool {
    // Nobody else adds to it, and the table is locked.
    let next = || (word.load() & !POISON) / QUANTUM % Notice::NUMBERS;
    let ahead = (one.number + Notice::NUMBERS - next()) % Notice::NUMBERS;
    if ahead == Notice::NUMBERS - 1 || early.contains(&one) {
        tell(|| tracing::warn!("a signal has come twice"));
        return false;
    }
    if one_of.is_some_and(|parts| !all_have_come(one, parts, begun)) {
        return false;
    }
    if ahead > 0 {
        early.push(one);
        return false;
    }
    word.add(QUANTUM);
    let wanted = |each: &Early, number| *each == Early { number, ..one };
    while let Some(at) = early.iter().position(|each| wanted(each, next())) {
        early.swap_remove(at);
        word.add(QUANTUM);
    }
    true
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
    fn a_signal_in_parts_comes_with_the_last_of_them() {
        let (word, mut early, mut begun) = (Word::new(0), Vec::new(), Vec::new());
        // Some of the next signal before all of this one; and one that has come has no parts any more.
        for (number, count) in [
            (0, 0),
            (1, 0),
            (0, 0),
            (1, 0),
            (1, 0),
            (0, 2),
            (1, 2),
            (2, 2),
            (2, 2),
            (2, 3),
        ] {
            come(&word, one(number), Some(3), &mut early, &mut begun);
            assert_eq!(word.load(), count * QUANTUM, "{number}");
        }
        assert!(early.is_empty() && begun.is_empty());
        // Other words, and signals that come whole, are no parts of it.
        come(&word, one(3), Some(2), &mut early, &mut begun);
        come(
            &word,
            Early {
                offset: 16,
                ..one(3)
            },
            Some(2),
            &mut early,
            &mut begun,
        );
        come(&word, one(4), None, &mut early, &mut begun);
        assert_eq!(word.load(), 3 * QUANTUM);
        come(&word, one(3), Some(2), &mut early, &mut begun);
        assert_eq!(word.load(), 5 * QUANTUM);
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
