//! What a stream says of its failure, and of waits that take long: by the mirror, and by the host.
//!
//! # Model
//!
//! Waits that take long are reported in the mirror, in [`MAX_BLOCKED`] places that the waits of a batch share by turns:
//! so of very many not all are seen at once ([`Crowded`]), and one that is seen late was there before. So the time
//! counts from when the first of them was seen, as long as any of them is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tidegate_hal::batch::Tag;
use tidegate_hal::device::{Blocked, Fault};

#[cfg(doc)]
use crate::lower::MAX_BLOCKED;
use crate::lower::{FAULT_WAIT, RawFault};

/// The fault of a stream whose context is `lost`, of which something was `broken_off` in its middle, and whose kernels
/// have said this.
pub(crate) fn fault(
    lost: Option<&String>,
    broken_off: Option<&String>,
    said: Option<RawFault>,
) -> Option<Fault> {
    if let Some(text) = lost {
        return Some(Fault::Kernel(text.clone()));
    }
    // Not all of it rings: whoever has armed a NIC for it must hear that.
    if let Some(text) = broken_off {
        return Some(Fault::Transport(text.clone()));
    }
    let said = said?;
    Some(if said.kind == FAULT_WAIT {
        Fault::Wait {
            tag: said.tag().into(),
            epoch: said.epoch,
            // The kernel does not carry it.
            site: None,
        }
    } else {
        Fault::Aborted
    })
}

/// What a stream is blocked on now, if it was so `before`.
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

/// Until when a stream may wait for more than is reported at a time.
#[derive(Debug, Default)]
pub(crate) struct Crowded(AtomicU64);

impl Crowded {
    /// Until it has passed this item; for ever, if that is the greatest number.
    pub(crate) fn until(&self, item: u64) {
        self.0.fetch_max(item, Ordering::AcqRel);
    }

    /// Whether it may when it has passed so many items.
    pub(crate) fn at(&self, passed: u64) -> bool {
        passed < self.0.load(Ordering::Acquire)
    }
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
        // What was aborted behind it says so, too: the reason is the first.
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
        // Another is seen, and one of the first is over.
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
