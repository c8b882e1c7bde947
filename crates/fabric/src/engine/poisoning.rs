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

/// How often a peer is told of a failure if nobody can look whether it has come: with pauses, each twice as long as the
/// one before, since what has failed may have taken the connection along, and another one takes a while. About a second
/// in all.
pub(super) const TELL: u32 = 10;
/// The first of these pauses, and how long the peer's agent has before its word is read.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// The longest pause before a peer is told again.
const AGAIN: Duration = Duration::from_millis(250);
/// How often a word that cannot be read is tried to be, and the pause in between.
pub(super) const LOOKS: (u32, Duration) = (2, Duration::from_millis(20));
/// The byte of a word in which [`POISON`] stands alone.
static POISONED: u8 = 1 << (POISON.trailing_zeros() % 8);

/// A peer is to be told of a failure.
pub(super) struct Poisoning<W: Wire> {
    pub(super) peer: usize,
    pub(super) what: SignalWord<W>,
    pub(super) step: PoisonStep,
    /// Not before.
    pub(super) due: Option<Instant>,
    /// Since when the word is not poisoned though the peer was told, without the time in which it did not answer.
    pub(super) missing: Option<Silence>,
    /// Since when the wire refuses to tell the peer.
    pub(super) refused: Option<Silence>,
    /// It has failed for too long if the peer is there; the control plane was asked.
    pub(super) question: Option<Question>,
    /// Before it is told again then.
    pub(super) pause: Duration,
    /// Where the word is read to.
    pub(super) word_there: Arc<AtomicU64>,
}

/// What is under way, or is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoisonStep {
    /// The peer is told. Then it is looked whether that has come.
    Tell,
    /// It is looked whether that has come, which has failed so often.
    Look(u32),
    /// The peer is told, as it was so often: the word cannot be read.
    TellBlindly(u32),
}

impl<W: Wire> Poisoning<W> {
    /// `looks`: its word can be read, as far as that is known.
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

    /// What is next, after a pause.
    pub(super) fn goes_on(&mut self, step: PoisonStep, pause: Duration) {
        self.step = step;
        self.due = Some(Instant::now() + pause);
    }

    /// What is next, after a pause that is longer each time.
    pub(super) fn goes_back(&mut self, step: PoisonStep) {
        self.goes_on(step, self.pause);
        self.pause = (2 * self.pause).min(AGAIN);
    }

    /// The peer was told so often where the word cannot be read. It is told again, after a pause that is longer each
    /// time; `false` if that was often enough.
    pub(super) fn tells_blindly(&mut self, times: u32) -> bool {
        if times < TELL {
            self.goes_on(PoisonStep::TellBlindly(times + 1), PAUSE * 2u32.pow(times));
        }
        times < TELL
    }

    /// Behind a pause: whether the word is not poisoned for too long by now.
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
            // Behind all adds of this end to the word, which nobody else adds to.
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
