//! How threads rest: all of them on a wire, and the listener also in its [chair](crate::base::Chair).

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// How long a thread sleeps at most while something is under way, at first: not every provider says by its
/// descriptor that it wants to go on.
pub(super) const ACTIVE: Duration = Duration::from_millis(1);
/// And while nothing is under way.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// How long at least and at most, where nothing on the wire ends the sleep; between, a sixteenth of the time since
/// something happened.
pub(super) const DEAF: (Duration, Duration) =
    (Duration::from_micros(200), Duration::from_millis(4));
/// Between looks when the wire is broken.
pub(super) const BROKEN: Duration = Duration::from_millis(10);

/// How long to sleep on a wire, where nothing is under way and nothing has come for so long.
pub(super) fn idle(hears: bool, since: Duration) -> Duration {
    if hears {
        IDLE
    } else {
        (since / 16).clamp(DEAF.0, DEAF.1)
    }
}

/// And where something is under way: not every provider says by its descriptor that it wants to go on. A sixteenth of the
/// time since something happened: what is never heard of again keeps nobody awake.
pub(super) fn awaits(hears: bool, since: Duration) -> Duration {
    if hears {
        (since / 16).clamp(ACTIVE, IDLE)
    } else {
        idle(hears, since)
    }
}

/// How long the listener sits while streams do its work, at first and at most. So long may a peer wait for what only this end's
/// processor can do, when a stream has gone from waiting to working; and so often the listener takes the processor from
/// somebody (for 28 us on a virtual machine: with half a millisecond in between, a ping-pong lost 0.5 us of 7 one way).
const SIT: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(4));
/// How often streams look, at least, that do nothing else: a sit is doubled as long as they do.
const LOOKED: Duration = Duration::from_micros(4);

/// When the listener sits, and for how long.
pub(super) struct Seat {
    /// How often streams had come by when it last looked.
    seen: u64,
    next: Duration,
}

impl Seat {
    pub(super) fn new() -> Self {
        Seat {
            seen: 0,
            next: SIT.0,
        }
    }

    /// How long to sit: while streams come by, and longer while they do little else. `active`: something of this rank is
    /// under way, which a stream may leave alone.
    pub(super) fn sits(&mut self, visits: u64, active: bool) -> Option<Duration> {
        let new = visits - std::mem::replace(&mut self.seen, visits);
        if new == 0 {
            return None;
        }
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        self.next = if !active && self.next / new <= LOOKED {
            (2 * self.next).min(SIT.1)
        } else {
            SIT.0
        };
        Some(self.next)
    }

    /// A stream has called, which comes no more: what it did before that is no reason to sit down again.
    pub(super) fn called(&mut self, visits: u64) {
        self.seen = visits;
    }
}

/// What the listener is needed for, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Need {
    Nothing,
    /// Signals are in doubt.
    Doubts,
    /// Something is under way, or a doorbell may be rung that nobody rings a bell for.
    Work,
}

/// What the listener was needed for after the last turn.
#[derive(Default)]
pub(super) struct Needs(AtomicU8);

impl Needs {
    pub(super) fn set(&self, need: Need) {
        self.0.store(need as u8, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Need {
        match self.0.load(Ordering::Relaxed) {
            0 => Need::Nothing,
            1 => Need::Doubts,
            _ => Need::Work,
        }
    }
}

/// What the listener knows, while it sleeps on the wire, that it is needed for: it looks again as soon as that asks for.
/// Doubts are there after every put, so most of its sleeps know of them and of no more: what a new program needs it for
/// must end those, too.
pub(super) struct Slumber(AtomicU8);

impl Slumber {
    /// It is awake, which is as if it knew of everything.
    pub(super) fn none() -> Self {
        Slumber(AtomicU8::new(Need::Work as u8))
    }

    pub(super) fn begin(&self, knows: Need) {
        self.0.store(knows as u8, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.begin(Need::Work);
    }

    /// Whether the listener is to be woken. Says so to one who asks.
    pub(super) fn is_to_end(&self, why: Need) -> bool {
        // Once more than is needed does no harm: between the two it may have slept anew.
        self.0.load(Ordering::SeqCst) < why as u8
            && self.0.swap(Need::Work as u8, Ordering::SeqCst) < Need::Work as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often streams look within `sit`, at `each` microseconds.
    fn looks(sit: Duration, each: u128) -> u64 {
        (sit.as_micros() / each) as u64
    }

    #[test]
    fn it_sits_longer_while_streams_do_nothing_else() {
        let (mut seat, mut visits) = (Seat::new(), 0);
        let mut sits = |new, active| {
            visits += new;
            seat.sits(visits, active)
        };
        let mut time = SIT.0;
        for _ in 0..10 {
            time = sits(looks(time, 2), false).unwrap();
        }
        assert_eq!(time, SIT.1);
        // A tenth of the time; nothing but looks, while something of their own is under way; as often as can be.
        assert_eq!(sits(looks(time / 10, 2), false), Some(SIT.0));
        assert_eq!(sits(looks(SIT.0, 2), false), Some(2 * SIT.0));
        assert_eq!(sits(looks(2 * SIT.0, 2), true), Some(SIT.0));
        assert_eq!(sits(u64::from(u32::MAX) + 1, false), Some(2 * SIT.0));
        assert_eq!(sits(0, false), None);
    }

    #[test]
    fn it_does_not_sit_down_again_for_who_has_called() {
        let mut seat = Seat::new();
        assert!(seat.sits(1, false).is_some());
        // The stream looks some more, calls, and sleeps.
        seat.called(7);
        assert_eq!(seat.sits(7, false), None);
        assert!(seat.sits(8, false).is_some());
    }
}
