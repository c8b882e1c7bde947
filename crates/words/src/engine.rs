//! Runs the lanes of a batch.

use std::time::Duration;

use tidegate_hal::batch::{Add, Batch, Move, Step, Store, Tag, Wait};
use tidegate_hal::memory::Ptr;

use crate::bell::{Bell, Patience};
use crate::word::{State, Word};

/// How far a batch has come after a look at all of its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// All lanes are through.
    Done,
    /// Every lane that is left is blocked in a wait.
    Blocked,
    /// A wait was poisoned.
    Failed(Halt),
    /// The mover cannot go on.
    Broken,
}

/// The wait that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halt {
    /// Whose wait.
    pub tag: Tag,
    /// The epoch whose count was not reached, from 0.
    pub epoch: u64,
}

/// Carries out moves.
pub trait Mover {
    /// Does what `step` says.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold for the batch that the move belongs to, and its lane has come to it.
    unsafe fn carry(&mut self, step: &Move);

    /// Adds to a word, after all that was carried before, and rings its bell. Returns whether it could: if not, the
    /// batch has failed. By default the word is mapped, and it can.
    ///
    /// # Safety
    ///
    /// As [`Mover::carry`].
    #[inline]
    unsafe fn add(&mut self, add: &Add) -> bool {
        // SAFETY: the caller's promise; the word is mapped, and the bell.
        unsafe { signal(add) };
        true
    }

    /// Poisons a word in place of adding to it, and rings its bell, which is not null.
    ///
    /// # Safety
    ///
    /// As [`Mover::carry`].
    unsafe fn poison(&mut self, add: &Add) {
        // SAFETY: the caller's promise; the word is mapped, and the bell.
        let (word, bell) = unsafe { (word(add.word), bell(add.bell)) };
        word.poison();
        bell.ring();
    }

    /// Looks at the word of a wait, and advances the operand if the count has come. By default that is all.
    ///
    /// # Safety
    ///
    /// As [`Mover::carry`].
    #[inline]
    unsafe fn look(&mut self, wait: &Wait) -> State {
        // SAFETY: the caller's promise.
        unsafe { pass(wait) }
    }

    /// All lanes are blocked. By default there is nothing else to do.
    #[inline]
    fn blocked(&mut self) -> Blocked {
        Blocked::Waits
    }

    /// The longest sleep of a waiter, where what it waits for may come without its bell being rung. By default as long as
    /// [`Bell::wait_with_naps`] lets it.
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

/// How far each lane of one batch has come. Reused from batch to batch: it allocates only when a batch has more
/// lanes than any before.
#[derive(Debug, Default)]
pub struct Engine {
    next: Vec<u32>,
    left: usize,
    added: bool,
}

impl Engine {
    /// Begins a batch.
    pub fn begin(&mut self, batch: &Batch) {
        self.next.clear();
        self.next.resize(batch.lanes().len(), 0);
        self.left = batch.lanes().iter().filter(|lane| lane.len != 0).count();
    }

    /// Takes every lane as far as it goes without waiting.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold for `batch`, which is the one that was begun.
    pub unsafe fn poll(&mut self, batch: &Batch, mover: &mut impl Mover) -> Poll {
        if self.left == 0 {
            return Poll::Done;
        }
        for (next, lane) in self.next.iter_mut().zip(batch.lanes()) {
            let steps = batch.steps(*lane);
            if *next as usize == steps.len() {
                continue;
            }
            while let Some(step) = steps.get(*next as usize) {
                match step {
                    // SAFETY: `Batch::new` promises that word and operand point to live words.
                    Step::Wait(wait) => match unsafe { mover.look(wait) } {
                        State::Reached => {}
                        State::Pending => break,
                        // SAFETY: as above.
                        State::Poisoned => return Poll::Failed(unsafe { halt(wait) }),
                    },
                    // SAFETY: the batch's promises hold, and all earlier steps of the lane are done.
                    Step::Move(step) => unsafe { mover.carry(step) },
                    // What this thread has written is released by the add that follows.
                    Step::Flush => {}
                    Step::Add(add) => {
                        // SAFETY: `Batch::new` promises that word and bell are live.
                        if !unsafe { mover.add(add) } {
                            return Poll::Broken;
                        }
                        self.added = true;
                    }
                    // SAFETY: `Batch::new` promises that the place may be written now.
                    Step::Store(store) => unsafe { strike(store) },
                }
                *next += 1;
            }
            if *next as usize == steps.len() {
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

    /// Gives up the batch that was begun: every add that has not been done and that somebody may wait for
    /// becomes a poisoning.
    ///
    /// # Safety
    ///
    /// As [`Engine::poll`].
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

    /// What the begun batch still waits for: the wait that each unfinished lane stands before, with its epoch.
    ///
    /// # Safety
    ///
    /// As [`Engine::poll`].
    pub unsafe fn pending<'a>(&'a self, batch: &'a Batch) -> impl Iterator<Item = (Tag, u64)> + 'a {
        self.next
            .iter()
            .zip(batch.lanes())
            .filter_map(
                |(next, lane)| match batch.steps(*lane).get(*next as usize) {
                    Some(Step::Wait(wait)) => {
                        // SAFETY: `Batch::new` promises that the words are live.
                        let Halt { tag, epoch } = unsafe { halt(wait) };
                        Some((tag, epoch))
                    }
                    _ => None,
                },
            )
    }
}

/// What a waiting thread does next, when every lane is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Looks at the lanes again when its patience says so.
    Waits,
    /// Looks at once: something has been done meanwhile.
    Again,
    /// Gives up.
    Aborts,
}

impl Blocked {
    /// Gives up if it is aborted.
    pub fn unless(aborted: bool) -> Self {
        if aborted {
            Blocked::Aborts
        } else {
            Blocked::Waits
        }
    }
}

/// Runs a batch to its end, sleeping on `bell` while every lane is blocked. `blocked` is asked whenever that is so what
/// to do; `before_sleep` is called each time before it really sleeps.
///
/// # Errors
///
/// The wait that failed; none if it was aborted, or if the mover could not go on. The batch has then been given up.
///
/// # Safety
///
/// The promises of [`Batch::new`] hold; `bell` is the one that is rung for the words of the batch.
pub unsafe fn run(
    engine: &mut Engine,
    batch: &Batch,
    mover: &mut impl Mover,
    bell: &Bell,
    patience: Patience,
    mut blocked: impl FnMut(&mut Engine) -> Blocked,
    mut before_sleep: impl FnMut(&Engine),
) -> Result<(), Option<Halt>> {
    engine.begin(batch);
    let cell = std::cell::RefCell::new(engine);
    let outcome = bell.wait_with_naps(
        patience,
        mover.nap(),
        || {
            let engine = &mut *cell.borrow_mut();
            loop {
                // SAFETY: the caller's promise; the batch was begun above.
                match unsafe { engine.poll(batch, mover) } {
                    Poll::Done => return Some(Ok(())),
                    Poll::Failed(halt) => return Some(Err(Some(halt))),
                    Poll::Broken => return Some(Err(None)),
                    Poll::Blocked => match mover.blocked() {
                        Blocked::Waits => match blocked(engine) {
                            Blocked::Waits => return None,
                            Blocked::Again => {}
                            Blocked::Aborts => return Some(Err(None)),
                        },
                        Blocked::Again => {}
                        Blocked::Aborts => return Some(Err(None)),
                    },
                }
            }
        },
        || before_sleep(&cell.borrow()),
    );
    let engine = cell.into_inner();
    if outcome.is_err() {
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
    let (word, operand) = unsafe { (word(wait.word), word(wait.operand)) };
    let from = operand.operand();
    let state = word.look(from, wait.quantum);
    if state == State::Reached && wait.quantum != 0 {
        operand.advance(from + wait.quantum);
    }
    state
}

/// # Safety
///
/// As [`pass`].
unsafe fn halt(wait: &Wait) -> Halt {
    // SAFETY: the caller's promise.
    let operand = unsafe { word(wait.operand) };
    let epochs = operand.operand() / tidegate_hal::batch::QUANTUM;
    Halt {
        tag: wait.tag,
        // A ticket's operand has been advanced already by the epoch that it stands for.
        epoch: if wait.quantum == 0 {
            epochs.saturating_sub(1)
        } else {
            epochs
        },
    }
}

/// # Safety
///
/// The add's word is live, and its bell if it is not null.
#[inline]
unsafe fn signal(add: &Add) {
    // SAFETY: the caller's promise.
    unsafe { word(add.word) }.add(add.value);
    if !add.bell.is_null() {
        // SAFETY: the caller's promise.
        unsafe { bell(add.bell) }.ring();
    }
}

/// # Safety
///
/// The store's place is live, and may be written.
#[inline]
unsafe fn strike(store: &Store) {
    // SAFETY: the caller's promise; a register is written by single stores only, which is what an atomic's is.
    unsafe { word(store.to) }.strike(store.value);
}
