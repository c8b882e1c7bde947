//! Runs the lanes of a batch.

use std::time::Duration;

use tidegate_hal::batch::{Add, Batch, Move, POISON, Pull, QUANTUM, Step, Store, Tag, Turn, Wait};
use tidegate_hal::memory::Ptr;

use crate::bell::{Bell, Patience};
use crate::sync::{Ordering, fence};
use crate::word::{State, Word};

/// The state of a batch after a look at all of its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// All lanes are through.
    Done,
    /// Every unfinished lane is blocked in a wait.
    Blocked,
    /// A wait was poisoned, or a check has failed.
    Failed(Halt),
    /// The mover cannot go on.
    Broken,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// A wait.
    Wait {
        /// What the wait was for.
        tag: Tag,
        /// The number of the epoch whose count was not reached, from 0.
        epoch: u64,
    },
    /// A check.
    Check {
        /// What the number is for.
        tag: Tag,
        /// The number that is too great.
        count: u64,
    },
}

impl Halt {
    /// What the step was for.
    pub fn tag(&self) -> Tag {
        match *self {
            Halt::Wait { tag, .. } | Halt::Check { tag, .. } => tag,
        }
    }
}

/// What an add leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// To ring the bell, which is mapped.
    Rings,
    /// Nothing.
    Quietly,
    /// It could not be made, and the batch has failed.
    Broken,
}

/// Carries out moves.
pub trait Mover {
    /// Carries out a move.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold for the batch that the move belongs to, and its lane has reached the move.
    unsafe fn carry(&mut self, step: &Move);

    /// Copies the data of a pull, which lie at this address of the origin's process. Returns whether it could. The default
    /// cannot.
    ///
    /// # Safety
    ///
    /// As for [`Mover::carry`]. The origin may write the data meanwhile.
    unsafe fn pull(&mut self, pull: &Pull, from: u64) -> bool {
        let _ = (pull, from);
        false
    }

    /// Adds to a word, after all earlier moves, and does not ring its bell. Returns whether it could; if not, the batch
    /// has failed. The default is for a word that is mapped, and always succeeds.
    ///
    /// # Safety
    ///
    /// As for [`Mover::carry`].
    #[inline]
    unsafe fn add(&mut self, add: &Add) -> Added {
        // SAFETY: the caller's promise; the word is mapped.
        match unsafe { signal(add) } {
            true if !add.bell.is_null() => Added::Rings,
            _ => Added::Quietly,
        }
    }

    /// Poisons a word instead of adding to it, and rings its bell, which is not null.
    ///
    /// # Safety
    ///
    /// As for [`Mover::carry`].
    unsafe fn poison(&mut self, add: &Add) {
        // SAFETY: the caller's promise; the word is mapped, and the bell.
        let (word, bell) = unsafe { (word(add.word), bell(add.bell)) };
        word.poison();
        bell.ring();
    }

    /// Looks at the word of a wait, and advances the operand if the count has been reached. The default does nothing
    /// else.
    ///
    /// # Safety
    ///
    /// As for [`Mover::carry`].
    #[inline]
    unsafe fn look(&mut self, wait: &Wait) -> State {
        // SAFETY: the caller's promise.
        unsafe { pass(wait) }
    }

    /// Called when this lane of the batch is about to go on. The default has nothing to do.
    #[inline]
    fn goes_on(&mut self, lane: usize) {
        let _ = lane;
    }

    /// Called when the lane that went on last is through. The default has nothing to do.
    #[inline]
    fn through(&mut self) {}

    /// Called when all lanes are blocked. The default has nothing to do.
    #[inline]
    fn blocked(&mut self) -> Blocked {
        Blocked::Waits
    }

    /// The longest sleep of a waiting thread, if what it waits for may come without a ring. By default the longest
    /// sleep of [`Bell::wait_with_naps`].
    #[inline]
    fn nap(&self) -> Option<Duration> {
        None
    }
}

impl<F: FnMut(&Move)> Mover for F {
    unsafe fn carry(&mut self, step: &Move) {
        self(step);
    }
}

/// How far each lane of one batch has come. It is reused from batch to batch, and allocates only when a batch has more
/// lanes than any before.
#[derive(Debug, Default)]
pub struct Engine {
    next: Vec<u32>,
    left: usize,
    added: bool,
    /// The bells that are still to be rung, each once.
    owed: Owed,
}

/// A few bells.
#[derive(Debug)]
struct Owed {
    bells: [Ptr; Owed::MOST],
    count: usize,
}

impl Default for Owed {
    fn default() -> Self {
        Owed {
            bells: [Ptr::NULL; Owed::MOST],
            count: 0,
        }
    }
}

impl Owed {
    const MOST: usize = 16;

    /// Notes a bell. Returns whether that took the last place.
    #[inline]
    fn note(&mut self, bell: Ptr) -> bool {
        if !self.bells[..self.count].contains(&bell) {
            self.bells[self.count] = bell;
            self.count += 1;
        }
        self.count == Owed::MOST
    }
}

impl Engine {
    /// Rings the bells of all adds that have been made. [`Engine::poll`] rings for a batch that is not
    /// [quick](Batch::is_quick), and [`run`] before it waits. Otherwise this is left to the caller, who may make several
    /// batches first: a ring costs a fence, which waits until the stores of this thread have reached the caches.
    ///
    /// # Safety
    ///
    /// The bells of all batches since the last call are live.
    #[inline]
    pub unsafe fn ring(&mut self) {
        let count = std::mem::take(&mut self.owed.count);
        if count != 0 {
            // SAFETY: the caller's promise.
            let bells = self.owed.bells[..count]
                .iter()
                .map(|at| unsafe { bell(*at) });
            Bell::ring_all(bells);
        }
    }

    /// Begins a batch.
    #[inline]
    pub fn begin(&mut self, batch: &Batch) {
        let lanes = batch.lanes();
        if self.next.len() < lanes.len() {
            self.next.resize(lanes.len(), 0);
        }
        self.left = 0;
        for (next, lane) in self.next.iter_mut().zip(lanes) {
            *next = 0;
            self.left += usize::from(lane.len != 0);
        }
    }

    /// Runs every lane as far as possible without waiting.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold for `batch`, and it is the batch that was begun.
    #[inline]
    pub unsafe fn poll(&mut self, batch: &Batch, mover: &mut impl Mover) -> Poll {
        if self.left == 0 {
            return Poll::Done;
        }
        for (number, lane) in batch.lanes().iter().enumerate() {
            let steps = batch.steps(*lane);
            if self.next[number] as usize == steps.len() {
                continue;
            }
            mover.goes_on(number);
            while let Some(step) = steps.get(self.next[number] as usize) {
                match step {
                    // SAFETY: `Batch::new` promises that word and operand point to live words.
                    Step::Wait(wait) => match unsafe { mover.look(wait) } {
                        State::Reached => {}
                        State::Pending => break,
                        // SAFETY: as above.
                        State::Poisoned => return Poll::Failed(unsafe { halt(wait) }),
                    },
                    // SAFETY: `Batch::new` promises that the number is live and aligned, and that it is not written
                    // now.
                    Step::Check(check) => match unsafe { check.count.0.cast::<u64>().read() } {
                        count if count > check.most => {
                            let tag = check.tag;
                            return Poll::Failed(Halt::Check { tag, count });
                        }
                        _ => {}
                    },
                    // SAFETY: the batch's promises hold, and all earlier steps of the lane are done.
                    Step::Move(step) => unsafe { mover.carry(step) },
                    // SAFETY: as above.
                    Step::Pull(step) => match unsafe { pull(step, mover) } {
                        Ok(()) => {}
                        Err(halt) => return Poll::Failed(halt),
                    },
                    // The add that follows releases everything that this thread has written.
                    Step::Flush => {}
                    Step::Add(add) => {
                        // SAFETY: `Batch::new` promises that word and bell are live.
                        match unsafe { mover.add(add) } {
                            Added::Rings => {
                                if self.owed.note(add.bell) || !batch.is_quick() {
                                    // SAFETY: as above; the caller rings before any of these bells is freed.
                                    unsafe { self.ring() };
                                }
                            }
                            Added::Quietly => {}
                            Added::Broken => return Poll::Broken,
                        }
                        self.added = true;
                    }
                    // SAFETY: `Batch::new` promises that the place may be written now.
                    Step::Store(store) => unsafe { strike(store) },
                }
                self.next[number] += 1;
            }
            if self.next[number] as usize == steps.len() {
                mover.through();
                self.left -= 1;
            }
        }
        if self.left == 0 {
            Poll::Done
        } else {
            Poll::Blocked
        }
    }

    /// Whether adds were made since the last call.
    pub fn take_added(&mut self) -> bool {
        std::mem::take(&mut self.added)
    }

    /// Gives up the batch that was begun: poisons the word of every add that has not been made and that somebody may
    /// wait for.
    ///
    /// # Safety
    ///
    /// As for [`Engine::poll`].
    pub unsafe fn give_up(&mut self, batch: &Batch, mover: &mut impl Mover) {
        for (next, lane) in self.next.iter().zip(batch.lanes()) {
            for step in &batch.steps(*lane)[*next as usize..] {
                if let Step::Add(add) = step
                    && !add.bell.is_null()
                {
                    // SAFETY: `Batch::new` promises that word and bell are live.
                    unsafe { mover.poison(add) };
                }
            }
        }
        self.left = 0;
    }

    /// The waits at which the unfinished lanes of the begun batch stand, each with its epoch.
    ///
    /// # Safety
    ///
    /// As for [`Engine::poll`].
    pub unsafe fn pending<'a>(&'a self, batch: &'a Batch) -> impl Iterator<Item = (Tag, u64)> + 'a {
        self.next
            .iter()
            .zip(batch.lanes())
            .filter_map(
                |(next, lane)| match batch.steps(*lane).get(*next as usize) {
                    Some(Step::Wait(wait)) => {
                        // SAFETY: `Batch::new` promises that the words are live.
                        Some((wait.tag, unsafe { epoch_of(wait) }))
                    }
                    _ => None,
                },
            )
    }
}

/// What a waiting thread does next, when every lane is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Looks at the lanes again, as often as its patience allows, and then sleeps.
    Waits,
    /// Looks again at once, because something has been done meanwhile.
    Again,
    /// Gives up.
    Aborts,
    /// Returns at once and touches nothing more: this is a child of the process, which the batch does not belong to.
    Leaves,
}

impl Blocked {
    /// Gives up if the stream is `aborted`; otherwise waits.
    pub fn unless(aborted: bool) -> Self {
        if aborted {
            Blocked::Aborts
        } else {
            Blocked::Waits
        }
    }
}

/// Runs a batch to its end, and sleeps on `bell` while every lane is blocked. Whenever that is so, it asks `blocked`
/// what to do. It calls `before_sleep` each time before it really sleeps. Before it waits, it rings for all adds so far.
/// For the last ones, [`Engine::ring`] is left to the caller.
///
/// # Errors
///
/// The step that failed, or `None` if the batch was aborted or left, or if the mover could not go on. The batch has been
/// given up, unless it was left.
///
/// # Safety
///
/// The promises of [`Batch::new`] hold. `bell` is the one that is rung for the words of the batch.
#[inline]
pub unsafe fn run(
    engine: &mut Engine,
    batch: &Batch,
    mover: &mut impl Mover,
    bell: &Bell,
    patience: Patience,
    blocked: impl FnMut(&mut Engine) -> Blocked,
    before_sleep: impl FnMut(&Engine),
) -> Result<(), Option<Halt>> {
    engine.begin(batch);
    // A stream that others are ahead of waits for nothing, and should not pay for waits.
    // SAFETY: the caller's promise; the batch was begun.
    if let Poll::Done = unsafe { engine.poll(batch, mover) } {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { go_on(engine, batch, mover, bell, patience, blocked, before_sleep) }
}

/// [`run`], for a batch that was begun.
///
/// # Safety
///
/// As for [`run`].
#[inline(never)]
unsafe fn go_on(
    engine: &mut Engine,
    batch: &Batch,
    mover: &mut impl Mover,
    bell: &Bell,
    patience: Patience,
    mut blocked: impl FnMut(&mut Engine) -> Blocked,
    mut before_sleep: impl FnMut(&Engine),
) -> Result<(), Option<Halt>> {
    let mut left = false;
    let cell = std::cell::RefCell::new(engine);
    let outcome = bell.wait_with_naps(
        patience,
        mover.nap(),
        || {
            let engine = &mut *cell.borrow_mut();
            loop {
                // SAFETY: the caller's promise; the batch was begun.
                match unsafe { engine.poll(batch, mover) } {
                    Poll::Done => return Some(Ok(())),
                    Poll::Failed(halt) => return Some(Err(Some(halt))),
                    Poll::Broken => return Some(Err(None)),
                    Poll::Blocked => {
                        // SAFETY: the caller's promise, for this batch and those that it owes rings for.
                        unsafe { engine.ring() };
                        let next = match mover.blocked() {
                            Blocked::Waits => blocked(engine),
                            next => next,
                        };
                        match next {
                            Blocked::Waits => return None,
                            Blocked::Again => {}
                            Blocked::Aborts => return Some(Err(None)),
                            Blocked::Leaves => {
                                left = true;
                                return Some(Err(None));
                            }
                        }
                    }
                }
            }
        },
        || before_sleep(&cell.borrow()),
    );
    let engine = cell.into_inner();
    if outcome.is_err() && !left {
        // SAFETY: the caller's promise.
        unsafe { engine.give_up(batch, mover) };
    }
    outcome
}

/// # Safety
///
/// `ptr` points to a live word.
unsafe fn word<'a>(ptr: Ptr) -> &'a Word {
    // SAFETY: the caller's promise; words are only ever accessed atomically.
    unsafe { &*ptr.0.cast::<Word>() }
}

/// # Safety
///
/// `ptr` points to a live bell.
unsafe fn bell<'a>(ptr: Ptr) -> &'a Bell {
    // SAFETY: the caller's promise; bells are only ever accessed atomically.
    unsafe { &*ptr.0.cast::<Bell>() }
}

/// # Safety
///
/// The wait's word and operand are live.
unsafe fn pass(wait: &Wait) -> State {
    // SAFETY: the caller's promise.
    let (count, operand) = unsafe { (word(wait.word), word(wait.operand)) };
    let from = operand.operand();
    let state = match wait.ring {
        None => count.look(from, wait.quantum),
        Some(ring) => {
            let (flag, value) = ring.of_epoch(from / QUANTUM);
            // SAFETY: the caller's promise.
            let flag = unsafe { word(flag) };
            if flag.load() == value {
                State::Reached
            } else if count.load() & POISON == 0 {
                State::Pending
            } else if flag.load() == value {
                // The peer stored it before it poisoned the word.
                State::Reached
            } else {
                State::Poisoned
            }
        }
    };
    if state == State::Reached && wait.quantum != 0 {
        operand.advance(from + wait.quantum);
    }
    state
}

/// The number of the epoch that a wait is for, from 0, as long as it is not over.
///
/// # Safety
///
/// The wait's operand is live.
pub unsafe fn epoch_of(wait: &Wait) -> u64 {
    // SAFETY: the caller's promise.
    let operand = unsafe { word(wait.operand) };
    let epochs = operand.operand() / tidegate_hal::batch::QUANTUM;
    // A ticket's operand already counts the epoch that the ticket is for.
    if wait.quantum == 0 {
        epochs.saturating_sub(1)
    } else {
        epochs
    }
}

/// # Safety
///
/// As for [`pass`].
unsafe fn halt(wait: &Wait) -> Halt {
    Halt::Wait {
        tag: wait.tag,
        // SAFETY: the caller's promise.
        epoch: unsafe { epoch_of(wait) },
    }
}

/// Pulls, and makes sure that the origin had not given up.
///
/// # Safety
///
/// As for [`Mover::pull`].
#[inline(never)]
unsafe fn pull(pull: &Pull, mover: &mut impl Mover) -> Result<(), Halt> {
    // SAFETY: the caller's promise; the parity is the operand of the wait before, which has advanced it.
    let epoch = unsafe { word(pull.parity) }.epoch();
    let turn = epoch as usize & (pull.buffers as usize - 1);
    let at = pull.address.byte_add(turn * pull.flip);
    // SAFETY: as above. The origin put the address there before this lane's wait was over.
    let address = unsafe { at.0.cast::<u64>().read_unaligned() };
    // SAFETY: as above.
    let whole = unsafe { mover.pull(pull, address.wrapping_add(pull.offset as u64)) };
    // The origin poisons, and then uses the memory again. If any of that was read, this finds the poison.
    fence(Ordering::Acquire);
    // SAFETY: as above.
    match whole && unsafe { word(pull.guard) }.load() & POISON == 0 {
        true => Ok(()),
        false => Err(Halt::Wait {
            tag: pull.tag,
            epoch,
        }),
    }
}

/// Returns whether anything was added.
///
/// # Safety
///
/// The add's word is live, and what its turn names.
#[inline]
unsafe fn signal(add: &Add) -> bool {
    match add.turn {
        None => {}
        Some(Turn::Flag { ring, operand }) => {
            // SAFETY: the caller's promise.
            let (flag, value) = ring.of_epoch(unsafe { word(operand) }.epoch());
            // SAFETY: as above.
            unsafe { word(flag) }.flag(value);
            return true;
        }
        Some(Turn::Every { epochs, operand }) => {
            // SAFETY: the caller's promise.
            let epoch = unsafe { word(operand) }.operand() / QUANTUM;
            if !epoch.is_multiple_of(epochs) {
                return false;
            }
        }
        Some(Turn::Never) => return false,
    }
    // SAFETY: the caller's promise.
    unsafe { word(add.word) }.add(add.value);
    true
}

/// # Safety
///
/// The store's place is live, and may be written.
#[inline]
unsafe fn strike(store: &Store) {
    // SAFETY: the caller's promise; a register must be written by single stores, and an atomic's store is one.
    unsafe { word(store.to) }.strike(store.value);
}
