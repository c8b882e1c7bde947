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
        if !inside(of_word, notice.offset, size_of::<Word>())
            || !inside(of_bell, 0, size_of::<Bell>())
            || of_bell.base % align_of::<Bell>() != 0
        {
            return false;
        }
        // SAFETY: both lie within registered memory, which the table keeps while it is locked, and are aligned; `NicQueue::prepare` promised the origin's caller a word and a bell there. All
        // bytes are some word and some bell, and both are only accessed atomically.
        let (word, bell) = unsafe {
            let word: *const Word = std::ptr::with_exposed_provenance(of_word.base + notice.offset);
            let bell: *const Bell = std::ptr::with_exposed_provenance(of_bell.base);
            (&*word, &*bell)
        };
        if notice.poison {
            word.poison();
            bell.wake_all();
        } else {
            word.add(QUANTUM);
            bell.ring();
        }
        true
    }
}
