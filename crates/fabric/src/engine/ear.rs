//! Endpoints that receive.
//!
//! # Model
//!
//! If streams are not threads, a single thread would have to copy everything that a rank sends into the network, and
//! everything that arrives out of it. So, if the wire allows it, such a rank has one more endpoint. Peers write to this
//! *ear*, which a thread of its own serves, and the engine's endpoint only sends and reads. Peers need not know of it:
//! they write to the endpoint that the rank's address and keys name. If peers send by several [rails](super::rail),
//! there is an ear for each rail.
//!
//! # Failure
//!
//! An ear that breaks is reported as a broken wire.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::rest::{BROKEN, idle};
use crate::base::Yielding;
use crate::notice::Notice;
use crate::regions::Regions;
use crate::strays::Strays;
use crate::wire::{Event, Sleeper, Wire};

/// How long an ear polls without a pause after something has arrived.
const KEEN: Duration = Duration::from_micros(200);

/// The endpoint that peers write to.
pub(crate) struct Ear<W> {
    wire: Yielding<W>,
    sleeper: Box<dyn Sleeper>,
    /// How often it has polled.
    pub(super) rounds: AtomicU64,
    /// How many events have arrived.
    pub(super) heard: AtomicU64,
}

impl<W: Wire> Ear<W> {
    pub(super) fn new(wire: W) -> Self {
        Ear {
            sleeper: wire.sleeper(),
            wire: Yielding::new(wire),
            rounds: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        act(&mut self.wire.lock())
    }

    pub(super) fn wake(&self) {
        self.sleeper.wake();
    }

    /// The loop of the ear's thread. Everything that arrives goes to `regions`. It calls `reads` if letters
    /// have come, and `says` with the reason if the wire breaks.
    pub(super) fn serve(
        &self,
        stop: &AtomicBool,
        (regions, strays): (&Regions, &Strays),
        reads: impl Fn(),
        says: impl FnOnce(String),
    ) {
        let (mut events, mut last) = (Vec::new(), Instant::now());
        while !stop.load(Ordering::SeqCst) {
            let mut wire = self.wire.lock_last();
            let polled = wire.poll(&mut events);
            let may_sleep = wire.may_sleep();
            drop(wire);
            let mut came = 0;
            for event in events.drain(..) {
                came += 1;
                match event {
                    Event::Notice(bits) => regions.hear(Notice::decode(bits)),
                    _ => strays.drops("something is over at an endpoint that sends nothing"),
                }
            }
            if regions.has_letters() {
                reads();
            }
            self.heard.fetch_add(came, Ordering::Relaxed);
            self.rounds.fetch_add(1, Ordering::SeqCst);
            if let Err(error) = polled {
                says(error.to_string());
                // A thread that waits until this one has looked waits for its rounds.
                while !stop.load(Ordering::SeqCst) {
                    self.rounds.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(BROKEN);
                }
                return;
            }
            if came > 0 {
                last = Instant::now();
            } else if last.elapsed() < KEEN || !may_sleep {
                std::thread::yield_now();
            } else {
                let hears = self.sleeper.hears();
                self.sleeper.sleep(idle(hears, last.elapsed()));
                if hears {
                    last = Instant::now();
                }
            }
        }
    }
}
