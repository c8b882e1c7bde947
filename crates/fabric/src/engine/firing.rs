//! A program that is being fired.

use tidegate_hal::nic::Prepared;

use super::departure::Question;
use super::gather::Source;
use super::program::script;
use super::queue::{Queue, Ring};
use crate::wire::Wire;

/// A program that is being fired.
pub(super) struct Firing {
    pub(super) program: Prepared,
    pub(super) number: u64,
    pub(super) progress: Progress,
    /// How many of its operations are under way. Its signal counts from when it is held.
    pub(super) under_way: usize,
    /// How many of these rails have been handed.
    pub(super) by_rails: usize,
    pub(super) fate: Fate,
    /// What is under way does not come to an end, and nobody waits for that.
    pub(super) is_stranded: bool,
}

/// How much of a firing has been posted.
pub(super) enum Progress {
    /// Its pieces are posted, each when its part of the ring has come.
    Posting {
        ring: Ring,
        /// The next piece.
        next: usize,
        /// Where its bytes are, if the wire has not taken it yet.
        source: Option<Source>,
    },
    /// Everything is posted, or only the signal is still held.
    Signalled,
}

/// How a firing stands.
pub(super) enum Fate {
    Well,
    /// This has gone wrong. It is a failure if the peer is there: that was asked. See [`departure`](super::departure).
    Asked(String, Question),
    /// It does not signal any more.
    Failed,
}

impl Firing {
    pub(super) fn begin(program: Prepared, number: u64, ring: Ring) -> Self {
        Firing {
            program,
            number,
            progress: Progress::Posting {
                ring,
                next: 0,
                source: None,
            },
            under_way: 0,
            by_rails: 0,
            fate: Fate::Well,
            is_stranded: false,
        }
    }

    /// How far it has been rung for.
    pub(super) fn ring(&self) -> Ring {
        match self.progress {
            Progress::Posting { ring, .. } => ring,
            Progress::Signalled => Ring::Whole,
        }
    }

    /// Looks how far it has been rung for by now.
    pub(super) fn look_at_ring(&mut self, queue: &Queue) {
        if let Progress::Posting { ring, .. } = &mut self.progress
            && let Ring::Parts(_) = ring
        {
            *ring = queue.ring_of(self.number);
        }
    }

    /// Whether its ring has gone on since it was last looked at, or nobody waits for it any more.
    pub(super) fn is_called(&self, queue: &Queue) -> bool {
        match self.ring() {
            Ring::Parts(_) => queue.is_abandoned() || queue.ring_of(self.number) != self.ring(),
            Ring::Whole | Ring::Broken => false,
        }
    }

    /// An operation that went by this rail is over.
    pub(super) fn lands(&mut self, rail: usize) {
        self.under_way -= 1;
        self.by_rails -= usize::from(rail > 0);
    }

    pub(super) fn has_signalled(&self) -> bool {
        matches!(self.progress, Progress::Signalled)
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
        self.has_signalled() || script::<W>(&self.program).asks == 0
    }

    /// Whether something is still to be asked for that it brings.
    pub(super) fn is_to_ask<W: Wire>(&self) -> bool {
        match self.progress {
            Progress::Posting { next, .. } => next < script::<W>(&self.program).asks,
            Progress::Signalled => false,
        }
    }
}
