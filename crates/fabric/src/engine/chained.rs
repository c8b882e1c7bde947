//! Queues that hardware fires: the engine passes programs on, counts rings, and sees which firings are through.
//!
//! # Model
//!
//! The queue has the same list of armed programs as in the software engine. A [`Chained`] gives the beginning of the
//! list to a [`Chain`], as much as that can hold. It does so when the host arms, on the host's thread, and in a turn of
//! the engine, when a firing is through and there is room again. If the stream strikes the hardware itself, no software
//! takes part from there to the signal. Otherwise the turn that sees the doorbell strikes.
//!
//! A turn then asks the chain which firings are through, and reports them: the place in the queue, the sent word, its
//! bell.
//!
//! # Failure
//!
//! A stream that fails poisons the doorbell. When everything that was rung for is through, the rest is taken back as
//! far as the hardware can, and the queue gives up.
//!
//! An operation that fails blocks the chain behind it. The queue gives up when all that was rung for before it is
//! through (or has made no progress for a second), and nothing has moved for a moment.
//!
//! Three more things are failures once a time limit has passed:
//!
//! - The NIC refuses works for lack of triggers. Until the limit, it is tried again.
//! - A stream has rung, but its strike has not arrived. The engine looks for it repeatedly. Time in which nobody looked
//!   does not count, because a stream stops with its process.
//! - A firing that was struck for does not end: [`contact`](super::contact) says when its peer has been silent for too
//!   long.

use std::time::{Duration, Instant};

use tidegate_hal::nic::{Direction, NicError};

use super::departure::Question;
use super::doubt::FAILED;
use super::program::{Script, script};
use super::queue::Queue;
use super::silence::Silence;
use crate::base::NAME;
use crate::wire::chain::{Chain, Signal, Stuck};
use crate::wire::{Posted, Wire};

/// How long nothing must have moved before a failed chain is given up, so that operations after the failure that have
/// begun can end.
const GRACE: Duration = Duration::from_millis(20);

/// Why a chain has stopped.
pub(super) struct Failure {
    pub(super) why: String,
    /// The number (from 0) of the firing that failed. Earlier firings may still come through.
    pub(super) at: u64,
    /// The time since something was last through, or failed.
    pub(super) lull: Silence,
    /// The question that the failure waits for, if the peer may have gone.
    pub(super) question: Option<Question>,
}

impl Failure {
    pub(super) fn new(at: u64, why: String) -> Self {
        Failure {
            why,
            at,
            lull: Silence::new(),
            question: None,
        }
    }

    /// Whether no rung firing will come through any more: all before the failure are through, or were lost with it.
    pub(super) fn leaves_nothing(&mut self, through: u64, rung: u64) -> bool {
        through >= self.at.min(rung) || self.lull.look(Instant::now(), FAILED)
    }
}

/// A queue's chain, and its progress.
pub(crate) struct Chained<W: Wire> {
    pub(super) chain: Box<dyn Chain<W::Remote>>,
    /// Whether streams strike by themselves.
    pub(super) strikes: bool,
    /// How many firings the hardware has been given, and how many of them are through.
    pub(super) fed: u64,
    pub(super) through: u64,
    /// How many rings were struck for, here or by the stream.
    pub(super) struck: u64,
    /// The time in which there was no room for firings that have been rung for.
    pub(super) refused: Option<Silence>,
    /// The limit of both times.
    pub(super) limit: Duration,
    pub(super) moved: Instant,
    /// The time since something last moved, as far as the agent has looked.
    pub(super) silence: Silence,
    state: ChainState,
}

/// The state of a chain.
enum ChainState {
    Well,
    Failed(Failure),
    /// The chain has been given up.
    Over,
}

impl<W: Wire> Chained<W> {
    pub(crate) fn new(chain: Box<dyn Chain<W::Remote>>, limit: Duration) -> Self {
        Chained {
            chain,
            strikes: false,
            fed: 0,
            through: 0,
            struck: 0,
            refused: None,
            limit,
            moved: Instant::now(),
            silence: Silence::new(),
            state: ChainState::Well,
        }
    }

    pub(crate) fn chain(&self) -> &dyn Chain<W::Remote> {
        &*self.chain
    }

    /// From now on streams strike by themselves. Nothing has been armed yet.
    pub(crate) fn struck_by_streams(&mut self) {
        debug_assert_eq!((self.fed, self.struck), (0, 0), "it is said at once");
        self.strikes = true;
        self.chain.struck_by_streams();
    }

    /// Gives armed programs to the hardware. Returns whether this must be called again: the hardware refuses for now
    /// what it should have room for, or it has failed.
    pub(crate) fn feed(&mut self, queue: &Queue) -> bool {
        while let ChainState::Well = self.state {
            let held = self.fed - self.through;
            let room = queue.slots(self.struck > self.fed).min(self.chain.depth());
            if held >= room as u64 {
                break;
            }
            let Some(program) = queue.armed(held as usize) else {
                self.refused = None;
                break;
            };
            let script: &Script<W> = script(&program);
            let odd = self.fed % 2 == 1;
            let pieces: Vec<_> = script
                .pieces
                .iter()
                .map(|piece| piece.op(0, odd, piece.at(odd), None))
                .collect();
            let signal = Signal {
                notice: script.notice(self.fed),
                word: (&script.word.0.remote, script.word.1),
            };
            // SAFETY: `NicQueue::prepare` promised this for the time between the ring and the signal, and the program
            // keeps the memory. The lock on this value is held.
            match unsafe { self.chain.queue(&pieces, &signal, &program.0) } {
                Ok(Posted::Taken) => {
                    self.fed += 1;
                    self.refused = None;
                }
                Ok(Posted::Full) => {
                    self.refused.get_or_insert_with(Silence::new);
                    break;
                }
                Err(error) => self.fail(self.fed, &error),
            }
        }
        self.refused.is_some() || self.has_failed()
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.state, ChainState::Failed(_))
    }

    /// Why the chain has stopped, unless it has been given up.
    pub(super) fn failure(&mut self) -> Option<&mut Failure> {
        match &mut self.state {
            ChainState::Failed(failure) => Some(failure),
            ChainState::Well | ChainState::Over => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, ChainState::Over)
    }

    /// Gives the chain up. Operations that the hardware has begun may still read; works keep the memory that they name.
    pub(super) fn ends(&mut self) {
        if !self.is_over() {
            self.state = ChainState::Over;
            self.chain.cancel();
        }
    }

    pub(super) fn moves(&mut self) {
        self.moved = Instant::now();
        self.silence.ends();
        if let ChainState::Failed(failure) = &mut self.state {
            failure.lull.ends();
        }
    }

    /// Notes a failure of firing `at`. If there are several, the first report counts.
    pub(super) fn fail(&mut self, at: u64, why: &impl ToString) {
        match &mut self.state {
            ChainState::Well => self.state = ChainState::Failed(Failure::new(at, why.to_string())),
            ChainState::Failed(failure) => failure.at = failure.at.min(at),
            ChainState::Over => {}
        }
    }

    /// Whether nothing has moved for a moment, and nothing will come through in spite of the failure.
    pub(super) fn has_come_to_rest(&mut self, rung: u64) -> bool {
        let through = self.through;
        let leaves_nothing = |failure: &mut Failure| failure.leaves_nothing(through, rung);
        self.moved.elapsed() > GRACE && self.failure().is_none_or(leaves_nothing)
    }

    /// Strikes for rings that nobody has struck for. Returns whether there were new rings.
    pub(super) fn strike(&mut self, rung: u64) -> bool {
        let new = rung - self.struck;
        self.struck = rung;
        if new > 0 {
            self.moves();
            if !self.strikes
                && let Err(error) = self.chain.fire(new)
            {
                self.fail(self.through, &error);
            }
        }
        new > 0
    }

    /// Reports the firings that are through, and fills the room. Returns whether there were any.
    pub(super) fn advance(&mut self, queue: &Queue) -> bool {
        let before = self.through;
        match self.chain.poll(&|| queue.rung_for().0) {
            Ok(through) => {
                while self.through < through {
                    self.through += 1;
                    queue.through();
                }
            }
            Err(Stuck { at, error }) => self.fail(at, &error),
        }
        if self.through != before {
            self.moves();
        }
        self.feed(queue);
        self.through != before
    }

    /// How many bytes the hardware has been fired for, if some are not through. (Failures, and lack of room, have
    /// limits of their own.)
    pub(super) fn under_way(&self, queue: &Queue) -> Option<u64> {
        let fired = self.struck.min(self.fed);
        let ChainState::Well = self.state else {
            return None;
        };
        if fired <= self.through {
            return None;
        }
        let programs = (0..fired - self.through).filter_map(|after| queue.armed(after as usize));
        Some(programs.map(|program| script::<W>(&program).bytes()).sum())
    }

    /// Notes that rung firings do not begin, because the stream's stores do not arrive. Between a GPU and a NIC are
    /// switches and IOMMUs, and nobody reports the stores that those drop.
    pub(super) fn listens(&mut self, rung: u64) {
        if !self.strikes || rung == self.through {
            return;
        }
        if self.silence.look(Instant::now(), self.limit) {
            let missing = self.chain.missing(rung);
            if missing > 0 {
                let why = format!(
                    "{missing} of a stream's {rung} stores to a register of the NIC have not arrived"
                );
                self.fail(self.through, &why);
            }
        }
    }

    /// Handles a peer that has left in good order: all rung firings are through, except those that only the peer could
    /// complete. Returns `false` if there is such a firing, which has failed.
    pub(super) fn lets_go(&mut self, queue: &Queue, rung: u64) -> bool {
        self.ends();
        while self.through < rung {
            let Some(program) = queue.armed(0) else {
                break;
            };
            let mut pieces = script::<W>(&program).pieces.iter();
            if !pieces.all(|piece| piece.direction == Direction::Put) {
                return false;
            }
            if queue.slots(true) == 0 {
                break;
            }
            self.through += 1;
            queue.through();
        }
        true
    }

    /// Fails if rung firings have found no room for longer than the limit.
    pub(super) fn starves(&mut self) {
        let (waits, limit) = (self.struck > self.fed, self.limit);
        let too_long = |refused: &mut Silence| waits && refused.look(Instant::now(), limit);
        if self.refused.as_mut().is_some_and(too_long) {
            let error = NicError::Exhausted {
                nic: NAME,
                what: "deferred works",
                detail: format!("nothing could be queued for {:?}", self.limit),
            };
            self.fail(self.fed, &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_before_a_failure_are_waited_for() {
        let mut failure = Failure::new(2, "the third fails".into());
        assert!(!failure.leaves_nothing(1, 4), "the second is to come");
        assert!(failure.leaves_nothing(2, 4));
        assert!(failure.leaves_nothing(1, 1) && failure.leaves_nothing(0, 0));
        // This must end, because its works may have been lost with the one that failed.
        failure.lull.lasts(FAILED);
        std::thread::sleep(Duration::from_millis(1));
        assert!(failure.leaves_nothing(1, 4));
    }
}
