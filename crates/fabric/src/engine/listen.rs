//! The threads that turn the engine when no stream does.
//!
//! # Model
//!
//! The *listener* sleeps on the wire. While streams turn the engine it would only be in their way: each message would
//! wake it, too. So it then takes a *chair*, looks up now and then whether they still do, and goes back to the wire
//! when they do not, or when one of them calls: that one is about to sleep. The *ringer* is there where streams are no
//! threads. Where nobody rings its bell either, the listener looks at the doorbells itself, as long as programs are
//! armed.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_words::Patience;

use super::doubt::TICK;
use super::{Engine, Shared};
use crate::base::lock;
use crate::wire::Wire;

/// A little patience: a stream that has rung once often rings again at once.
const PATIENCE: Patience = Patience {
    spins: 0,
    yields: 4,
};
/// How long the listener sleeps at most while something is under way, at first: not every provider says by its
/// descriptor that it wants to go on.
const ACTIVE: Duration = Duration::from_millis(1);
/// While the wire has no room.
const FULL: Duration = Duration::from_micros(50);
/// How often these two are doubled, while nothing happens.
const DOUBLED: u32 = 4;
/// And while nothing is under way.
const IDLE: Duration = Duration::from_secs(1);
/// How long at least and at most, where nothing on the wire ends the sleep; between, a sixteenth of the time since
/// something happened.
const DEAF: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(4));
/// Between looks when the wire is broken.
pub(super) const BROKEN: Duration = Duration::from_millis(10);
/// How often the listener looks again before it sleeps.
const LOOKS: u32 = 20;
/// For how long doorbells that nobody rings a bell for are looked at without a pause.
const KEEN: Duration = Duration::from_micros(200);
/// The pauses after that, at least and at most; between, a sixteenth of the time since something happened.
const NAP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// How long it sits while streams do its work, at first and at most. So long may a peer wait for what only this end's
/// processor can do, when a stream has gone from waiting to working; and so often the listener takes the processor from
/// somebody (for 28 us on a virtual machine: with half a millisecond in between, a ping-pong lost 0.5 us of 7 one way).
const SIT: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(4));
/// How often streams look, at least, that do nothing else: a sit is doubled as long as they do.
const LOOKED: Duration = Duration::from_micros(4);

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

/// When the listener sits, and for how long.
struct Seat {
    /// How often streams had come by when it last looked.
    seen: u64,
    next: Duration,
}

impl Seat {
    fn new() -> Self {
        Seat {
            seen: 0,
            next: SIT.0,
        }
    }

    /// How long to sit: while streams come by, and longer while they do little else. `active`: something of this rank is
    /// under way, which a stream may leave alone.
    fn sits(&mut self, visits: u64, active: bool) -> Option<Duration> {
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
    fn called(&mut self, visits: u64) {
        self.seen = visits;
    }
}

/// How the listener sleeps on the wire, for whoever may have to end that. Doubts are there after every put, so most of its
/// sleeps are of the second kind: whatever a new program needs it for must end those, too.
#[derive(Default)]
pub(super) struct Slumber(AtomicU8);

/// What the listener may be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Something is under way, or a doorbell may be rung that nobody rings a bell for.
    Work,
    /// Signals are in doubt.
    Doubts,
}

impl Slumber {
    /// It does not sleep, or so shortly that it finds everything out by itself.
    const AWAKE: u8 = 0;
    /// It knows of doubts, and looks again at the next tick.
    const IN_DOUBT: u8 = 1;
    /// Until it is woken, more or less.
    const LONG: u8 = 2;

    fn begin(&self, shortly: bool, in_doubt: bool) {
        let how = match (shortly, in_doubt) {
            (true, _) => Self::AWAKE,
            (false, true) => Self::IN_DOUBT,
            (false, false) => Self::LONG,
        };
        self.0.store(how, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.store(Self::AWAKE, Ordering::SeqCst);
    }

    /// Whether the listener is to be woken. Says so to one who asks.
    pub(super) fn is_to_end(&self, why: For) -> bool {
        let least = match why {
            For::Work => Self::IN_DOUBT,
            For::Doubts => Self::LONG,
        };
        // Once more than is needed does no harm: between the two it may have slept anew.
        self.0.load(Ordering::SeqCst) >= least
            && self.0.swap(Self::AWAKE, Ordering::SeqCst) != Self::AWAKE
    }
}

/// Where the listener sits.
#[derive(Default)]
pub(super) struct Chair {
    called: Mutex<bool>,
    bell: Condvar,
}

impl Chair {
    /// Sits until somebody calls, or has called since the last time; `false` if nobody does.
    fn sit(&self, limit: Duration) -> bool {
        let (mut called, _) = self
            .bell
            .wait_timeout_while(lock(&self.called), limit, |called| !*called)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *called)
    }

    pub(super) fn call(&self) {
        if !std::mem::replace(&mut *lock(&self.called), true) {
            self.bell.notify_all();
        }
    }
}

impl<W: Wire> Shared<W> {
    /// The thread that sleeps on the doorbells.
    pub(crate) fn ring(&self) {
        let bell = self.bell().expect("the threads begin when it is connected");
        bell.wait(
            PATIENCE,
            || {
                self.look();
                self.tell_listener();
                self.stop.load(Ordering::SeqCst).then_some(())
            },
            || {},
        );
    }

    /// The thread that sleeps on the wire.
    pub(crate) fn listen(&self) {
        let (mut quiet, mut last) = (0, Instant::now());
        let polled = self.is_polled();
        let (mut ticked, mut seat) = (Instant::now(), Seat::new());
        while !self.stop.load(Ordering::SeqCst) {
            let waits =
                self.doubtful.load(Ordering::Relaxed) || self.active.load(Ordering::Relaxed);
            if waits && ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.with(Engine::tick);
            }
            let visits = self.visits.load(Ordering::Relaxed);
            if !self.has_partings()
                && let Some(time) = seat.sits(visits, self.active.load(Ordering::Relaxed))
            {
                // What they have heard counts: one that has just gone to sleep depends on this thread.
                (quiet, last) = (0, Instant::now());
                // Who found the engine taken by this thread has gone on, and nobody else may come.
                if self.called() {
                    self.turn();
                }
                // There is more than one turn of it.
                if !self.called() && !self.chair.sit(time) {
                    continue;
                }
                seat.called(self.visits.load(Ordering::Relaxed));
            }
            while self.wanted.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
            let mut engine = lock(&self.engine);
            let heard = engine.heard;
            let failure = self.turn_locked(&mut engine, polled);
            self.rounds.fetch_add(1, Ordering::SeqCst);
            if self.has_partings() {
                self.release(engine);
                self.say(failure);
                self.take_leave();
                continue;
            }
            if engine.broken || failure.is_some() {
                let broken = engine.broken;
                self.release(engine);
                self.say(failure);
                if broken {
                    // There is nothing to listen to any more; queues that are made or closed are looked at now and then.
                    std::thread::sleep(BROKEN);
                }
                continue;
            }
            if engine.heard != heard {
                self.release(engine);
                quiet = 0;
                last = Instant::now();
                continue;
            }
            quiet += 1;
            let active = engine.is_active();
            let since = last.elapsed();
            // What a peer does next is awaited too, for a while.
            if polled && (since < KEEN || active || engine.armed() > 0) {
                self.release(engine);
                match since {
                    since if since < KEEN => std::thread::yield_now(),
                    since => std::thread::sleep((since / 16).clamp(NAP.0, NAP.1)),
                }
                continue;
            }
            if active && quiet < LOOKS {
                self.release(engine);
                std::thread::yield_now();
                continue;
            }
            let may_sleep = engine.wire.may_sleep();
            let doubled = 1 << quiet.saturating_sub(LOOKS).min(DOUBLED);
            let hears = self.sleeper.hears();
            let limit = match (engine.full, active) {
                (true, _) => FULL * doubled,
                (false, true) if hears => ACTIVE * doubled,
                (false, true) => DEAF.0,
                (false, false) => idle(hears, since),
            };
            let limit = if engine.is_doubtful() {
                limit.min(TICK)
            } else {
                limit
            };
            // Under the lock: whoever posts after this sees it.
            self.slumber
                .begin(engine.full || active, engine.is_doubtful());
            // Whoever arms after this wakes this thread; what was armed before is seen here.
            let armed = polled && engine.armed() > 0;
            self.release(engine);
            if !may_sleep {
                std::thread::yield_now();
            } else if !armed && !self.called() {
                let begun = Instant::now();
                self.sleeper.sleep(limit);
                // What has ended the sleep may be an arm: its ring comes soon.
                if hears || begun.elapsed() < limit {
                    last = Instant::now();
                }
            }
            self.slumber.end();
        }
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
