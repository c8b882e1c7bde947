//! Reports of a stream's failure, and of waits that take long, from the mirror and from the host.
//!
//! # Model
//!
//! The device writes to the mirror of a stream, and [`Mirrored`] reads it. It has [`MAX_BLOCKED`] places for waits that
//! take long, and the waits of a batch share them in turn. So if there are very many waits, not all are visible at once
//! ([`Crowded`]), and a wait that is seen late may have begun earlier. So the time counts from the first sight of any of
//! these waits, as long as one of them is still seen.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tidegate_hal::batch::Tag;
use tidegate_hal::device::{Blocked, DeviceError, Fault};
use tidegate_hal::memory::Ptr;

use crate::lower::{FAULT_COUNT, FAULT_WAIT, MAX_BLOCKED, Mirror, RawFault};

/// A stream's mirror, in which the device writes and the host reads, field by field.
pub(crate) struct Mirrored(NonNull<Mirror>);

// SAFETY: only this and the kernels of its stream use the memory (`new`), and its fields are accessed atomically.
unsafe impl Send for Mirrored {}
// SAFETY: as above.
unsafe impl Sync for Mirrored {}

impl Mirrored {
    /// # Safety
    ///
    /// The mirror is live pinned memory as long as this is used. Only this and the kernels of one stream use it.
    pub(crate) unsafe fn new(mirror: NonNull<Mirror>) -> Self {
        Mirrored(mirror)
    }

    /// The mirror, for the GPU that takes it back.
    pub(crate) fn raw(&self) -> NonNull<Mirror> {
        self.0
    }

    /// Where the mirror is.
    pub(crate) fn base(&self) -> Ptr {
        Ptr(self.0.as_ptr().cast())
    }

    /// What the stream's kernels have said about the first failure.
    pub(crate) fn fault(&self) -> Option<RawFault> {
        let mirror = self.0.as_ptr();
        // SAFETY: only the address is taken.
        if self.field(unsafe { &raw mut (*mirror).failed }) == 0 {
            return None;
        }
        // SAFETY: the fault was written before `failed` was set (release), and is not written again.
        Some(unsafe { (&raw const (*mirror).fault).read_volatile() })
    }

    /// The waits that take long.
    pub(crate) fn blocked(&self) -> Vec<(Tag, u64)> {
        let mut on = Vec::new();
        for index in 0..MAX_BLOCKED {
            // SAFETY: only the address is taken.
            let entry = unsafe { &raw mut (*self.0.as_ptr()).blocked[index] };
            // SAFETY: as above.
            if self.field(unsafe { &raw mut (*entry).active }) != 0 {
                // SAFETY: the entry was written before it became active. A torn entry only gives a wrong report.
                let entry = unsafe { entry.read_volatile() };
                on.push((entry.tag.into(), entry.epoch));
            }
        }
        on
    }

    /// The number of the gate that the stream has come to.
    pub(crate) fn gate(&self) -> u32 {
        // SAFETY: only the address is taken.
        self.field(unsafe { &raw mut (*self.0.as_ptr()).gate })
    }

    fn field(&self, field: *mut u32) -> u32 {
        // SAFETY: `field` lies in the mirror, which is live, aligned, and written by the device as a whole.
        unsafe { AtomicU32::from_ptr(field) }.load(Ordering::Acquire)
    }
}

/// The fault of a stream: its context may be `lost`, a submission may be `broken_off` in its middle, and its kernels
/// may have reported `said`.
pub(crate) fn fault(
    lost: Option<&String>,
    broken_off: Option<&String>,
    said: Option<RawFault>,
) -> Option<Fault> {
    if let Some(text) = lost {
        return Some(Fault::Kernel(text.clone()));
    }
    // A part of the submission does not ring, so the code that armed a NIC for it must be told.
    if let Some(text) = broken_off {
        return Some(Fault::Transport(text.clone()));
    }
    let said = said?;
    let tag = said.tag.into();
    Some(match said.kind {
        FAULT_WAIT => Fault::Wait {
            tag,
            epoch: said.epoch,
            // The kernel does not report it.
            site: None,
        },
        FAULT_COUNT => Fault::Count {
            tag,
            count: said.epoch,
        },
        _ => Fault::Aborted,
    })
}

/// What a stream is blocked on now. If it was already blocked `before`, it may have been blocked since then.
pub(crate) fn blocked(
    before: Option<Blocked>,
    on: Vec<(Tag, u64)>,
    more: bool,
    now: Instant,
) -> Option<Blocked> {
    let goes_on = before.filter(|before| before.on.iter().any(|wait| on.contains(wait)));
    let since = goes_on.map_or(now, |before| before.since);
    (!on.is_empty()).then_some(Blocked {
        on,
        more,
        site: None,
        since,
    })
}

/// Until which item a stream may wait for more words than are reported at a time.
#[derive(Debug, Default)]
pub(crate) struct Crowded(AtomicU64);

impl Crowded {
    /// It may until it has passed this item, or for ever if the number is the greatest.
    pub(crate) fn until(&self, item: u64) {
        self.0.fetch_max(item, Ordering::AcqRel);
    }

    /// Whether it may, after it has passed this many items.
    pub(crate) fn at(&self, passed: u64) -> bool {
        passed < self.0.load(Ordering::Acquire)
    }
}

/// The error for something with several parts, of which one was refused. If no part was `taken`, all of it is refused.
/// Otherwise it counts as submitted, and the stream is broken off.
pub(crate) fn refused_or_broken_off(
    taken: bool,
    all: Result<(), DeviceError>,
    break_off: impl FnOnce(&DeviceError),
) -> Result<(), DeviceError> {
    all.or_else(|error| {
        if taken {
            break_off(&error);
            Ok(())
        } else {
            Err(error)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_hal::batch::Awaited;
    use tidegate_hal::ids::{TeamId, WindowId};

    use super::*;

    #[test]
    fn what_was_broken_off_is_no_failure_of_a_kernel() {
        let (lost, off) = ("lost".to_owned(), "in part".to_owned());
        let said = RawFault {
            kind: FAULT_WAIT,
            epoch: 7,
            ..RawFault::default()
        };
        assert_eq!(fault(None, None, None), None);
        let by_wait = fault(None, None, Some(said));
        assert!(matches!(by_wait, Some(Fault::Wait { epoch: 7, .. })));
        let kind = FAULT_COUNT;
        let by_count = fault(None, None, Some(RawFault { kind, ..said }));
        assert!(matches!(by_count, Some(Fault::Count { count: 7, .. })));
        // Later items that were aborted report a fault, too. The first fault is the reason.
        let part = fault(None, Some(&off), Some(RawFault::default()));
        assert_eq!(part, Some(Fault::Transport(off.clone())));
        let all = fault(Some(&lost), Some(&off), Some(said));
        assert_eq!(all, Some(Fault::Kernel(lost)));
    }

    #[test]
    fn time_goes_on_while_a_wait_does() {
        let tag = |peer: &u32| Tag {
            window: Some(WindowId::first(TeamId::WORLD)),
            peer: *peer,
            awaited: Awaited::Exposure,
        };
        let waits = |peers: &[u32]| peers.iter().map(|peer| (tag(peer), 3)).collect();
        let at = |seconds| Duration::from_secs(seconds);
        let begin = Instant::now();
        let one = blocked(None, waits(&[1, 2]), false, begin);
        // Another wait is seen, and one of the first two is over.
        let two = blocked(one, waits(&[2, 3]), true, begin + at(1)).unwrap();
        assert_eq!((two.since, two.on.len(), two.more), (begin, 2, true));
        let three = blocked(Some(two.clone()), waits(&[4]), false, begin + at(2)).unwrap();
        assert_eq!((three.since, three.more), (begin + at(2), false));
        assert!(blocked(Some(two), Vec::new(), true, begin + at(2)).is_none());
    }

    #[test]
    fn a_stream_is_crowded_until_it_has_passed_what_makes_it_so() {
        let crowded = Crowded::default();
        assert!(!crowded.at(0));
        crowded.until(3);
        crowded.until(2);
        assert_eq!(
            [0, 2, 3, 4].map(|passed| crowded.at(passed)),
            [true, true, false, false]
        );
        crowded.until(u64::MAX);
        assert!(crowded.at(1 << 40));
    }
}
