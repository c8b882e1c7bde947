//! Stamps: when a stream did what.
//!
//! # Model
//!
//! The executor's thread fills a list of its own ([`Stamper`]). It moves the list into the ring that the reader empties
//! whenever the ring's lock is free. So the executor waits for the reader only when it has nothing else to do.

use std::sync::{Arc, Mutex};

use tidegate_hal::batch::{Add, Batch, Move, Pull, Wait};
use tidegate_hal::lock;
use tidegate_hal::stamps::{self, Leg, Stamp, Stamps, now};
use tidegate_words::{Added, Blocked, Mover, State, epoch_of};

/// The most stamps that wait for the reader. They take about 5 MB.
const MOST: usize = 1 << 16;

/// The stamps that wait for the reader.
#[derive(Default)]
pub(crate) struct Ring(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    stamps: Vec<Stamp>,
    dropped: u64,
}

impl Stamps for Ring {
    fn take(&self, each: &mut dyn FnMut(Stamp)) -> u64 {
        let (stamps, dropped) = {
            let mut waiting = lock(&self.0);
            (std::mem::take(&mut waiting.stamps), waiting.dropped)
        };
        stamps.into_iter().for_each(each);
        dropped
    }
}

/// What the executor has stamped.
pub(crate) struct Stamper {
    ring: Arc<Ring>,
    /// Stamps that are not in the ring yet.
    own: Vec<Stamp>,
    dropped: u64,
    batch: u64,
    /// The open leg of each lane of the batch. `None` before the first step.
    lanes: Vec<Open>,
    /// The lane that goes on.
    at: usize,
}

#[derive(Clone, Copy)]
struct Open {
    leg: Leg,
    /// Whether the leg has done anything.
    used: bool,
    /// Whether it has made a move after its last add.
    moves: bool,
}

impl Stamper {
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Stamper {
            ring,
            own: Vec::new(),
            dropped: 0,
            batch: 0,
            lanes: Vec::new(),
            at: 0,
        }
    }

    /// Begins a batch.
    pub(crate) fn begin(&mut self, batch: &Batch) {
        self.batch = batch.id();
        let begun = now();
        let lanes = 0..batch.lanes().len();
        self.lanes.clear();
        self.lanes
            .extend(lanes.map(|lane| Open::new(batch.id(), lane as u32, 0, begun)));
    }

    /// A kernel has run. It began at `begun`, when its thread had lost the time `lost`.
    pub(crate) fn kernel(&mut self, name: &'static str, (begun, lost): (u64, u64)) {
        let ended = now();
        let lost = stamps::lost().saturating_sub(lost);
        self.push(Stamp::Kernel {
            name,
            begun,
            ended,
            lost,
        });
        self.hand_over();
    }

    fn push(&mut self, stamp: Stamp) {
        if self.own.len() < MOST {
            self.own.push(stamp);
        } else {
            self.dropped += 1;
        }
    }

    /// Moves the stamps into the ring, unless the reader has it just now.
    pub(crate) fn hand_over(&mut self) {
        if let Ok(mut waiting) = self.ring.0.try_lock() {
            Self::pour(&mut self.own, &mut self.dropped, &mut waiting);
        }
    }

    /// Moves the stamps into the ring, when the executor has time.
    pub(crate) fn hand_over_all(&mut self) {
        let mut waiting = lock(&self.ring.0);
        Self::pour(&mut self.own, &mut self.dropped, &mut waiting);
    }

    fn pour(own: &mut Vec<Stamp>, dropped: &mut u64, waiting: &mut Waiting) {
        let room = MOST - waiting.stamps.len();
        waiting.dropped += std::mem::take(dropped) + own.len().saturating_sub(room) as u64;
        own.truncate(room);
        waiting.stamps.append(own);
    }

    fn open(&mut self) -> &mut Open {
        &mut self.lanes[self.at]
    }

    /// The wait of the lane that goes on is over. If its leg has done something, a new leg begins.
    fn waited(&mut self, epoch: u64) {
        let now = now();
        let open = self.open();
        if open.used {
            let (leg, next) = (open.close(), open.leg.leg + 1);
            *open = Open::new(leg.batch, leg.lane, next, leg.ended);
            self.push(Stamp::Leg(leg));
        }
        let open = self.open();
        open.used = true;
        open.leg.epoch = epoch;
        open.leg.satisfied = now;
        open.leg.moved = now;
        open.leg.ended = now;
    }

    fn moved(&mut self) {
        let open = self.open();
        (open.used, open.moves) = (true, true);
    }

    /// An add is about to be made.
    fn adds(&mut self) {
        if self.open().moves {
            let now = now();
            let open = self.open();
            (open.moves, open.leg.moved) = (false, now);
        }
    }

    fn added(&mut self) {
        let now = now();
        let open = self.open();
        (open.used, open.leg.ended) = (true, now);
    }

    fn through(&mut self) {
        let leg = self.open().close();
        self.push(Stamp::Leg(leg));
    }
}

impl Drop for Stamper {
    fn drop(&mut self) {
        self.hand_over_all();
    }
}

impl Open {
    fn new(batch: u64, lane: u32, leg: u32, begun: u64) -> Self {
        let (epoch, satisfied, moved, ended) = (0, begun, begun, begun);
        let leg = Leg {
            batch,
            lane,
            leg,
            epoch,
            begun,
            satisfied,
            moved,
            ended,
        };
        Open {
            leg,
            used: false,
            moves: false,
        }
    }

    /// The leg, which is over. Moves that no add has followed are over now.
    fn close(&self) -> Leg {
        let mut leg = self.leg;
        if self.moves {
            leg.moved = now();
            leg.ended = leg.moved;
        }
        leg
    }
}

/// A mover that stamps what the other one does.
pub(crate) struct Stamped<'a, M> {
    pub(crate) mover: &'a mut M,
    pub(crate) stamper: &'a mut Stamper,
}

impl<M: Mover> Mover for Stamped<'_, M> {
    unsafe fn carry(&mut self, step: &Move) {
        // SAFETY: the caller's promise.
        unsafe { self.mover.carry(step) };
        self.stamper.moved();
    }

    unsafe fn pull(&mut self, pull: &Pull, from: u64) -> bool {
        // SAFETY: the caller's promise.
        let pulled = unsafe { self.mover.pull(pull, from) };
        self.stamper.moved();
        pulled
    }

    unsafe fn add(&mut self, add: &Add) -> Added {
        self.stamper.adds();
        // SAFETY: the caller's promise.
        let added = unsafe { self.mover.add(add) };
        self.stamper.added();
        added
    }

    unsafe fn poison(&mut self, add: &Add) {
        // SAFETY: the caller's promise.
        unsafe { self.mover.poison(add) };
    }

    unsafe fn look(&mut self, wait: &Wait) -> State {
        // SAFETY: the caller's promise. The epoch is asked for first, because the look may advance the operand.
        let (epoch, state) = unsafe { (epoch_of(wait), self.mover.look(wait)) };
        if state == State::Reached {
            self.stamper.waited(epoch);
        }
        state
    }

    fn goes_on(&mut self, lane: usize) {
        self.stamper.at = lane;
        self.mover.goes_on(lane);
    }

    fn through(&mut self) {
        self.stamper.through();
        self.mover.through();
    }

    fn blocked(&mut self) -> Blocked {
        self.mover.blocked()
    }

    fn nap(&self) -> Option<std::time::Duration> {
        self.mover.nap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_hal::batch::{Awaited, Step, Tag};
    use tidegate_hal::memory::Ptr;
    use tidegate_words::{Bell, Engine, Poll, Word};

    fn pointer<T>(to: &T) -> Ptr {
        Ptr(std::ptr::from_ref(to).cast_mut().cast())
    }

    fn wait(word: &Word, operand: &Word) -> Step {
        Step::Wait(Wait {
            word: pointer(word),
            operand: pointer(operand),
            quantum: tidegate_hal::batch::QUANTUM,
            tag: Tag {
                window: None,
                peer: 0,
                awaited: Awaited::Barrier,
            },
            landed: None,
            ring: None,
        })
    }

    fn add(word: &Word, bell: &Bell) -> Step {
        Step::Add(Add {
            word: pointer(word),
            value: tidegate_hal::batch::QUANTUM,
            bell: pointer(bell),
            tag: None,
            turn: None,
        })
    }

    fn legs(ring: &Ring) -> Vec<Leg> {
        let mut legs = Vec::new();
        let dropped = ring.take(&mut |stamp| match stamp {
            Stamp::Leg(leg) => legs.push(leg),
            other => panic!("{other:?}"),
        });
        assert_eq!(dropped, 0);
        legs
    }

    /// A lane that adds, waits, adds, waits has three legs. The other lane waits at first for the word of the first.
    #[test]
    fn a_leg_ends_at_the_next_wait() {
        let [a, b, c] = [(); 3].map(|()| Word::new(0));
        let operands = [(); 3].map(|()| Word::new(0));
        let bell = Bell::new();
        let lanes = [
            vec![wait(&c, &operands[2])],
            vec![
                add(&a, &bell),
                wait(&a, &operands[0]),
                add(&b, &bell),
                add(&c, &bell),
                wait(&b, &operands[1]),
            ],
        ];
        // SAFETY: words and bell live as long as the test, and nothing else uses them.
        let batch = unsafe { Batch::new(lanes, Vec::new()) };
        let ring = Arc::<Ring>::default();
        let mut stamper = Stamper::new(ring.clone());
        let mut engine = Engine::default();
        for epoch in 0..2 {
            engine.begin(&batch);
            stamper.begin(&batch);
            let (mover, stamper) = (&mut crate::HostMover, &mut stamper);
            let mut mover = Stamped { mover, stamper };
            // SAFETY: as above.
            assert_eq!(unsafe { engine.poll(&batch, &mut mover) }, Poll::Blocked);
            // SAFETY: as above.
            assert_eq!(unsafe { engine.poll(&batch, &mut mover) }, Poll::Done);
            stamper.hand_over();
            let legs = legs(&ring);
            let names: Vec<_> = legs.iter().map(|leg| (leg.lane, leg.leg)).collect();
            assert_eq!(names, [(1, 0), (1, 1), (1, 2), (0, 0)]);
            for leg in &legs {
                assert_eq!(leg.batch, batch.id());
                assert_eq!(
                    leg.epoch,
                    if leg.leg == 0 && leg.lane == 1 {
                        0
                    } else {
                        epoch
                    }
                );
                let times = [leg.begun, leg.satisfied, leg.moved, leg.ended];
                assert!(times.is_sorted(), "{leg:?}");
            }
            // Each leg begins where the one before it has ended.
            assert_eq!(
                [legs[1].begun, legs[2].begun],
                [legs[0].ended, legs[1].ended]
            );
        }
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let ring = Arc::<Ring>::default();
        let mut stamper = Stamper::new(ring.clone());
        for _ in 0..MOST + 3 {
            stamper.kernel("kernel", (0, 0));
        }
        let mut taken = 0;
        assert_eq!(ring.take(&mut |_| taken += 1), 3);
        assert_eq!(taken, MOST);
        // The count is of all that were ever dropped.
        stamper.kernel("kernel", (0, 0));
        assert_eq!(ring.take(&mut |_| taken += 1), 3);
        assert_eq!(taken, MOST + 1);
    }
}
