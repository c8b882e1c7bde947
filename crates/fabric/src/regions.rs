//! What this rank has registered, by number: where notices find words and bells.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::QUANTUM;
use tidegate_hal::nic::{Keep, NicError};
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
    regions: HashMap<u32, Region>,
    next: u32,
}

/// A number in the table, until it is dropped.
pub(crate) struct Numbered {
    table: Weak<Regions>,
    pub(crate) number: u32,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let region = lock(&table.0).regions.remove(&self.number);
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
        table.regions.insert(number, region);
        Ok(Numbered {
            table: Arc::downgrade(self),
            number,
        })
    }

    /// Does what a notice says. `false` if it names what is not there: the registration has ended, or a peer is out of its mind.
    pub(crate) fn hear(&self, notice: Notice) -> bool {
        let table = lock(&self.0);
        let region = |number: u32| table.regions.get(&number);
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
            Some(further) => notice.offset.checked_add_signed(further).map(Some),
        };
        let Some(other) = other else { return false };
        let words = || [Some(notice.offset), other].into_iter().flatten();
        if !words().all(|offset| inside(of_word, offset, size_of::<Word>()))
            || !inside(of_bell, 0, size_of::<Bell>())
            || of_bell.base % align_of::<Bell>() != 0
        {
            return false;
        }
        // SAFETY: it lies within registered memory, which the table keeps while it is locked, and is aligned;
        // `NicQueue::prepare` promised the origin's caller a bell there. All bytes are some bell, and it is only
        // accessed atomically.
        let bell: &Bell = unsafe { &*std::ptr::with_exposed_provenance(of_bell.base) };
        for offset in words() {
            // SAFETY: as above, of a word.
            let word: &Word = unsafe { &*std::ptr::with_exposed_provenance(of_word.base + offset) };
            if notice.poison {
                word.poison();
            } else {
                word.add(QUANTUM);
            }
        }
        if notice.poison {
            bell.wake_all();
        } else {
            bell.ring();
        }
        true
    }
}
