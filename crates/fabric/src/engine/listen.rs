//! The threads that turn the engine when no stream does.
//!
//! # Model
//!
//! The *listener* sleeps on the wire. While streams turn the engine, it would only disturb them, because each message
//! would also wake it. So it then rests in a *chair*. It looks now and then whether streams still turn the engine. It
//! goes back to the wire when they do not, or when one of them calls because it is about to sleep.
//!
//! The *ringer* exists if streams are not threads, and sleeps on the doorbells' bell. If nothing rings that bell
//! either, the listener looks at the doorbells itself as long as programs are armed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_words::Patience;

use super::agent::Agent;
use super::doubt::TICK;
use super::rest::{ACTIVE, BROKEN, DEAF, Need, Seat, idle};
use super::state::Engine;
use crate::wire::Wire;

/// The ringer has a little patience, because a stream that has rung once often rings again at once.
const PATIENCE: Patience = Patience {
    spins: 0,
    yields: 4,
};
/// The pause while the wire has no room.
const FULL: Duration = Duration::from_micros(50);
/// How often both times are doubled while nothing happens.
const DOUBLED: u32 = 4;
/// How often the listener looks again before it goes to sleep.
const LOOKS: u32 = 20;
/// How long the listener polls doorbells without a bell, without a pause.
const KEEN: Duration = Duration::from_micros(200);
/// The least and the greatest pause after that. In between, a pause is a sixteenth of the time since something
/// happened.
const NAP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
impl<W: Wire> Agent<W> {
    /// The loop of the ringer.
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

    /// The loop of the listener.
    pub(crate) fn listen(&self) {
        let (mut quiet, mut last) = (0, Instant::now());
        let polled = self.is_polled();
        let (mut ticked, mut seat) = (Instant::now(), Seat::new());
        while !self.stop.load(Ordering::SeqCst) {
            let need = self.needs.get();
            if need != Need::Nothing && ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.with(Engine::tick);
            }
            let visits = self.visits.load(Ordering::Relaxed);
            if !self.has_partings()
                && let Some(time) = seat.sits(visits, need == Need::Work)
            {
                // Events that streams have received count here, too, because a stream that has just gone to sleep
                // depends on this thread.
                (quiet, last) = (0, Instant::now());
                // A thread that found the engine taken by this one has gone on, and perhaps no other comes.
                if self.called() {
                    self.turn();
                }
                // The call may need more than one turn.
                if !self.called() && !self.chair.sit(time) {
                    continue;
                }
                seat.called(self.visits.load(Ordering::Relaxed));
            }
            let mut engine = self.engine.lock_last();
            let heard = engine.heard;
            let failure = self.turn_locked(&mut engine, polled);
            self.rounds.fetch_add(1, Ordering::SeqCst);
            if self.has_partings() {
                self.release(engine);
                self.say(failure);
                self.take_leave();
                continue;
            }
            let broken = engine.is_broken();
            if broken || failure.is_some() {
                self.release(engine);
                self.say(failure);
                if broken {
                    // There is nothing to listen to any more. Look regularly at queues that are made or closed.
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
            let need = engine.needs();
            let active = need == Need::Work;
            let since = last.elapsed();
            // For a while, also wait for the peer's next message.
            if polled && (since < KEEN || active || engine.slots.armed() > 0) {
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
            let limit = if engine.queues.doubtful.is_empty() {
                limit
            } else {
                limit.min(TICK)
            };
            // This is set under the lock, so a thread that posts later sees it.
            self.slumber
                .begin(if engine.full { Need::Work } else { need });
            // A thread that arms later wakes this one, and earlier arms are seen here.
            let armed = polled && engine.slots.armed() > 0;
            self.release(engine);
            if !may_sleep {
                std::thread::yield_now();
            } else if !armed && !self.called() {
                let begun = Instant::now();
                self.sleeper.sleep(limit);
                // An arm may have ended the sleep. Then its ring comes soon.
                if hears || begun.elapsed() < limit {
                    last = Instant::now();
                }
            }
            self.slumber.end();
        }
    }
}
