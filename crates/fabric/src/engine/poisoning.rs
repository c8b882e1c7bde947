//! A peer that is to be told of a failure: see [`tell`](super::tell).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tidegate_hal::batch::POISON;

use super::departure::Question;
use super::program::SignalWord;
use super::silence::Silence;
use crate::wire::chain::Signals;
use crate::wire::{Op, Wire};

/// How often a peer is told of a failure if this end cannot read whether the poison has arrived. The pauses in between
/// double, because the failure may have closed the connection, and a new one takes time. All together take about a
/// second.
pub(super) const TELL: u32 = 10;
/// The first of these pauses. It is also how long the peer's agent has before its word is read.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// The longest pause before a peer is told again.
const AGAIN: Duration = Duration::from_millis(250);
/// How often to read a word before it counts as unreadable, and the pause in between.
pub(super) const LOOKS: (u32, Duration) = (2, Duration::from_millis(20));
/// The byte of a word that contains [`POISON`] and no bit of the count.
static POISONED: u8 = 1 << (POISON.trailing_zeros() % 8);

/// The task of telling a peer of a failure.
pub(super) struct Poisoning<W: Wire> {
    pub(super) peer: usize,
    pub(super) what: SignalWord<W>,
    pub(super) step: PoisonStep,
    /// The end of the pause.
    pub(super) due: Option<Instant>,
    /// The time in which the word was not poisoned although the peer was told, without the time in which the peer did
    /// not answer.
    pub(super) missing: Option<Silence>,
    /// The time in which the wire has refused to send the poison.
    pub(super) refused: Option<Silence>,
    /// The question whether the peer is there, once this has failed for too long.
    pub(super) question: Option<Question>,
    /// The pause before the peer is told again.
    pub(super) pause: Duration,
    /// The memory that the word is read into.
    pub(super) word_there: Arc<AtomicU64>,
}

/// The step that is in progress, or that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoisonStep {
    /// Tell the peer, and then read its word.
    Tell,
    /// Read the peer's word. This many reads have failed.
    Look(u32),
    /// Tell the peer, as this many times before: the word cannot be read.
    TellBlindly(u32),
}

impl<W: Wire> Poisoning<W> {
    /// Makes the task. `looks` says that the peer's word can be read, as far as is known.
    pub(super) fn new(peer: usize, what: SignalWord<W>, looks: bool) -> Self {
        Poisoning {
            peer,
            what,
            step: if looks {
                PoisonStep::Tell
            } else {
                PoisonStep::TellBlindly(0)
            },
            due: None,
            missing: None,
            refused: None,
            question: None,
            pause: PAUSE,
            word_there: Arc::default(),
        }
    }

    /// Sets the next step, after a pause.
    pub(super) fn goes_on(&mut self, step: PoisonStep, pause: Duration) {
        self.step = step;
        self.due = Some(Instant::now() + pause);
    }

    /// Sets the next step, after a pause that is longer each time.
    pub(super) fn goes_back(&mut self, step: PoisonStep) {
        self.goes_on(step, self.pause);
        self.pause = (2 * self.pause).min(AGAIN);
    }

    /// The word cannot be read, and the peer was told this many times. Tells it again, after a pause that is longer
    /// each time. Returns `false` if that was often enough.
    pub(super) fn tells_blindly(&mut self, times: u32) -> bool {
        if times < TELL {
            self.goes_on(PoisonStep::TellBlindly(times + 1), PAUSE * 2u32.pow(times));
        }
        times < TELL
    }

    /// After a pause: whether the word has been without the poison for too long.
    pub(super) fn has_missed(&mut self, limit: Duration) -> bool {
        let missing = self
            .missing
            .as_mut()
            .filter(|_| self.step == PoisonStep::Tell);
        missing.is_some_and(|missing| missing.look(Instant::now(), limit))
    }

    pub(super) fn op(&self, signals: Signals) -> Op<'_, W::Remote> {
        let (region, offset) = &self.what.word;
        match (self.step, signals) {
            (PoisonStep::Look(_), _) => Op::Read {
                to: self.word_there.as_ptr().cast(),
                bytes: size_of::<u64>(),
                from: &region.remote,
                offset: *offset,
            },
            (_, Signals::Notice) => Op::Notify(self.what.poison),
            // This comes after all adds of this end to the word, and nobody else adds to it.
            (_, Signals::Add) => Op::Write {
                from: &POISONED,
                bytes: 1,
                to: &region.remote,
                offset: offset + POISON.trailing_zeros() as usize / 8,
                notice: None,
            },
        }
    }
}
