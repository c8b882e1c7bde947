//! Operations in progress, and how they are carried out.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_fabric::wire::Event;

use super::state::{Health, State};

/// An operation that was posted, and is still at its origin.
pub(super) struct Waiting {
    /// The endpoint that it goes to.
    pub(super) peer: usize,
    pub(super) cookie: u64,
    /// Whether it counts as done once it is on its way.
    pub(super) signals: bool,
    pub(super) done: bool,
    pub(super) polls: u32,
    pub(super) work: Work,
    pub(super) notice: Option<u64>,
}

/// Its action.
pub(super) enum Work {
    Nothing,
    Send {
        bytes: Vec<u8>,
        region: u64,
        offset: usize,
    },
    Write {
        from: usize,
        region: u64,
        offset: usize,
        bytes: usize,
    },
    Read {
        to: usize,
        region: u64,
        offset: usize,
        bytes: usize,
    },
}

impl Waiting {
    /// Copies the data of a write, so that its source is not needed any more.
    pub(super) fn copy(&mut self) {
        if let Work::Write {
            from,
            region,
            offset,
            bytes,
        } = self.work
        {
            let from: *const u8 = std::ptr::with_exposed_provenance(from);
            // SAFETY: `Wire::post` promises the source until the event, which comes after this.
            let bytes = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
            self.work = Work::Send {
                bytes,
                region,
                offset,
            };
        }
    }
}

impl State {
    /// The memory of the peer that an operation accesses; `None` if it is no longer registered.
    fn place(&self, region: u64, offset: usize, bytes: usize) -> Option<*mut u8> {
        let region = self.regions.get(&region)?;
        (offset.checked_add(bytes)? <= region.bytes)
            .then(|| std::ptr::with_exposed_provenance_mut(region.base + offset))
    }

    /// Carries out operations that are due.
    pub(super) fn carry(&mut self, from: &Waiting) -> Event {
        let bad = || Event::Failed(from.cookie, "the memory is registered no longer".into());
        let lost = self.faults.lose;
        let lost = from.notice.is_some() && self.happens(lost);
        if lost && from.signals {
            return Event::Done(from.cookie);
        }
        match from.work {
            Work::Nothing => {}
            Work::Send {
                ref bytes,
                region,
                offset,
            } => {
                let Some(to) = self.place(region, offset, bytes.len()) else {
                    return bad();
                };
                self.carried += bytes.len() as u64;
                // SAFETY: `Wire::post` promises that this write is ordered with what others do there; registered memory
                // is kept.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            }
            Work::Write {
                from: at,
                region,
                offset,
                bytes,
            } => {
                let Some(to) = self.place(region, offset, bytes) else {
                    return bad();
                };
                self.carried += bytes as u64;
                // SAFETY: `Wire::post` promises both sides live, and this write ordered with what others do; registered
                // memory is kept.
                unsafe {
                    let from: *const u8 = std::ptr::with_exposed_provenance(at);
                    std::ptr::copy_nonoverlapping(from, to, bytes);
                }
            }
            Work::Read {
                to,
                region,
                offset,
                bytes,
            } => {
                let Some(at) = self.place(region, offset, bytes) else {
                    return bad();
                };
                // A word may be added to meanwhile, and networks read a word as a whole.
                let word = |at: *mut u8| at.cast::<AtomicU64>();
                if bytes == size_of::<u64>() && word(at).is_aligned() {
                    // SAFETY: as above; it is aligned, and all bytes are some number.
                    let read = unsafe { &*word(at) }.load(Ordering::Acquire);
                    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(to);
                    // SAFETY: as above.
                    unsafe { to.cast::<u64>().write_unaligned(read) };
                    return Event::Done(from.cookie);
                }
                // SAFETY: as above.
                unsafe {
                    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(to);
                    std::ptr::copy_nonoverlapping(at.cast_const(), to, bytes);
                }
            }
        }
        if let Some(notice) = from.notice.filter(|_| !lost) {
            let end = &mut self.ends[from.peer];
            if end.health != Health::Gone {
                end.arrived.push(Event::Notice(notice));
                end.chair.call();
            }
        }
        Event::Done(from.cookie)
    }
}
