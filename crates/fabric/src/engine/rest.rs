//! How threads rest: all of them on a wire, and the listener also in its [chair](crate::base::Chair).

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The longest sleep, at first, while something is in progress. Not every provider shows by its descriptor that it must
/// be polled.
pub(super) const ACTIVE: Duration = Duration::from_millis(1);
/// The longest sleep while nothing is in progress.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// The shortest and the longest sleep if nothing on the wire ends a sleep. In between, it is a sixteenth of the time
/// since something happened.
pub(super) const DEAF: (Duration, Duration) =
    (Duration::from_micros(200), Duration::from_millis(4));
/// The pause between looks when the wire is broken.
pub(super) const BROKEN: Duration = Duration::from_millis(10);

/// How long to sleep on a wire, if nothing is in progress and nothing has come for the time `since`.
pub(super) fn idle(hears: bool, since: Duration) -> Duration {
    if hears {
        IDLE
    } else {
        (since / 16).clamp(DEAF.0, DEAF.1)
    }
}

/// How long to sleep if something is in progress. (Not every provider shows by its descriptor that it must be polled.)
/// It is a sixteenth of the time since something happened, so that an operation that never ends keeps no thread awake.
pub(super) fn awaits(hears: bool, since: Duration) -> Duration {
    if hears {
        (since / 16).clamp(ACTIVE, IDLE)
    } else {
        idle(hears, since)
    }
}

/// How long the listener sits while streams do its work, at first and at most. A peer may wait this long for work that
/// only this end's processor can do, if a stream has gone from waiting to working. It also bounds how often the
/// listener takes the processor from another thread. (On a virtual machine that costs 28 us. With half a millisecond in
/// between, a ping-pong lost 0.5 us of 7 one way.)
const SIT: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(4));
/// Streams that do nothing else look at least this often. The time of a sit doubles as long as they do.
const LOOKED: Duration = Duration::from_micros(4);

/// When the listener sits, and for how long.
pub(super) struct Seat {
    /// How often streams had turned the engine when it last looked.
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

    /// How long to sit, if at all: it sits while streams turn the engine, and longer while they do little else.
    /// `active` says that this rank has something in progress, which a stream may leave alone.
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

    /// Notes that a stream has called because it will not come again. What the stream did before is no reason to sit
    /// down again.
    pub(super) fn called(&mut self, visits: u64) {
        self.seen = visits;
    }
}

/// The reasons why the listener is needed, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Need {
    Nothing,
    /// Signals are in doubt.
    Doubts,
    /// Something is in progress, or a doorbell without a bell may be rung.
    Work,
}

/// Why the listener was needed after the last turn.
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

/// The need that the sleeping listener knows of; it looks again as soon as that requires. After every put there are
/// doubts, so most of its sleeps know of doubts only. A new program needs more, and must end such a sleep, too.
pub(super) struct Slumber(AtomicU8);

impl Slumber {
    /// The listener is awake, as if it knew of every need.
    pub(super) fn none() -> Self {
        Slumber(AtomicU8::new(Need::Work as u8))
    }

    pub(super) fn begin(&self, knows: Need) {
        self.0.store(knows as u8, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.begin(Need::Work);
    }

    /// Whether to wake the listener for this need. Returns it to one caller only.
    pub(super) fn is_to_end(&self, why: Need) -> bool {
        // A needless wake-up does no harm: the listener may have gone to sleep anew between the two steps.
        self.0.load(Ordering::SeqCst) < why as u8
            && self.0.swap(Need::Work as u8, Ordering::SeqCst) < Need::Work as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often streams look within `sit`, if they look every `each` microseconds.
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
        // The cases: streams turn the engine for a tenth of the time; they do little else; they do little else, but
        // this rank has something in progress; they turn it as often as possible; they do not turn it.
        assert_eq!(sits(looks(time / 10, 2), false), Some(SIT.0));
        assert_eq!(sits(looks(SIT.0, 2), false), Some(2 * SIT.0));
        assert_eq!(sits(looks(2 * SIT.0, 2), true), Some(SIT.0));
        assert_eq!(sits(u64::from(u32::MAX) + 1, false), Some(2 * SIT.0));
        assert_eq!(sits(0, false), None);
    }

    #[test]
    fn it_does_not_sit_down_again_for_a_stream_that_has_called() {
        let mut seat = Seat::new();
        assert!(seat.sits(1, false).is_some());
        // The stream looks some more, calls, and sleeps.
        seat.called(7);
        assert_eq!(seat.sits(7, false), None);
        assert!(seat.sits(8, false).is_some());
    }
}
