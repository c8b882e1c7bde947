//! What is under way: firings of queues, their signals, and operations.

use tidegate_hal::nic::Prepared;

use super::departure::Question;
use super::doubt::Look;
use super::gather::{Lent, Source};
use super::poisoning::Poisoning;
use super::program::script;
use crate::wire::Wire;

/// How a firing stands.
pub(super) enum Fate {
    Well,
    /// This has gone wrong. Whether it is a failure depends on what has become of the peer: see
    /// [`departure`](super::departure).
    Held(String, Question),
    /// It does not signal any more.
    Failed,
}

/// A program that is being fired.
pub(super) struct Firing {
    pub(super) program: Prepared,
    pub(super) number: u64,
    /// How many parts of its ring have come; `None` when that is whole.
    pub(super) rung: Option<u64>,
    /// The next piece.
    pub(super) next: usize,
    /// Where its bytes are, if the wire has not taken it yet.
    pub(super) source: Option<Source>,
    pub(super) under_way: usize,
    /// How many of these rails have been handed.
    pub(super) by_rails: usize,
    pub(super) signalled: bool,
    pub(super) fate: Fate,
    /// What is under way does not come to an end, and nobody waits for that.
    pub(super) is_stranded: bool,
}

impl Firing {
    pub(super) fn begin(program: Prepared, number: u64, rung: Option<u64>) -> Self {
        Firing {
            program,
            number,
            rung,
            next: 0,
            source: None,
            under_way: 0,
            by_rails: 0,
            signalled: false,
            fate: Fate::Well,
            is_stranded: false,
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.fate, Fate::Failed)
    }

    pub(super) fn is_odd(&self) -> bool {
        self.number % 2 == 1
    }

    /// Whether it only sends, and nobody here waits for what it would bring: all of that has come when its signal goes
    /// out.
    pub(super) fn only_sends<W: Wire>(&self) -> bool {
        self.signalled || script::<W>(&self.program).asks == 0
    }

    /// Whether something is still to be asked for that it brings.
    pub(super) fn is_to_ask<W: Wire>(&self) -> bool {
        self.next < script::<W>(&self.program).asks
    }
}

/// The signal of a queue's firing, which counts as under way.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) queue: usize,
    pub(super) peer: usize,
    pub(super) notice: u64,
}

/// An operation that is under way.
pub(super) enum Flight<W: Wire> {
    Of(usize, Option<Lent>),
    /// Of the first, with the signals of others.
    With(usize, Held, Option<Lent>),
    /// Of a queue, by a rail.
    Handed(usize, usize),
    Poisoning(Poisoning<W>),
    Look(Look<W>),
}
