//! What is under way: firings of queues, and operations.

use tidegate_hal::nic::Prepared;

use super::departure::Question;
use super::doubt::Look;
use super::gather::{Lent, Source};
use super::poisoning::Poisoning;
use super::program::script;
use super::queue::{Queue, Ring};
use super::slab::Slab;
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

/// An operation that is under way.
pub(super) enum Flight<W: Wire> {
    /// A piece of a queue's firing, or its signal.
    Own {
        queue: usize,
        /// The queue whose signal goes along.
        along: Option<usize>,
        lent: Option<Lent>,
    },
    /// A piece of a queue's firing that a rail was handed.
    Handed {
        queue: usize,
        rail: usize,
    },
    Poisoning(Poisoning<W>),
    Look(Look<W>),
}

/// Whether the end of an operation matters.
#[derive(PartialEq, Eq)]
enum Interest {
    Awaited,
    /// Its peer is gone, so it may never end, and nobody waits for that.
    Adrift,
}

/// All operations that are under way.
pub(super) struct Flights<W: Wire> {
    all: Slab<(Flight<W>, Interest)>,
    /// How many were handed to rails.
    handed: usize,
    /// How many are adrift: the listener need not stay awake for them.
    adrift: usize,
}

impl<W: Wire> Flights<W> {
    pub(super) fn new() -> Self {
        Flights {
            all: Slab::new(),
            handed: 0,
            adrift: 0,
        }
    }

    /// The cookie of the operation that is added next.
    pub(super) fn next(&self) -> u64 {
        self.all.next() as u64
    }

    pub(super) fn add(&mut self, flight: Flight<W>) {
        self.handed += usize::from(matches!(flight, Flight::Handed { .. }));
        self.all.add((flight, Interest::Awaited));
    }

    /// An operation is over.
    pub(super) fn take(&mut self, cookie: u64) -> Option<Flight<W>> {
        let (flight, state) = self.all.take(cookie as usize)?;
        self.handed -= usize::from(matches!(flight, Flight::Handed { .. }));
        self.adrift -= usize::from(state == Interest::Adrift);
        Some(flight)
    }

    /// All are over.
    pub(super) fn take_all(&mut self) -> Vec<Flight<W>> {
        (self.handed, self.adrift) = (0, 0);
        self.all.take_all().map(|(flight, _)| flight).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight<W>> {
        self.all.iter().map(|(flight, _)| flight)
    }

    /// Whether the end of any matters.
    pub(super) fn are_awaited(&self) -> bool {
        self.all.len() > self.adrift
    }

    /// How many are under way by the engine's own endpoint.
    pub(super) fn posted(&self) -> usize {
        self.all.len() - self.handed
    }

    /// Nobody waits for these any more.
    pub(super) fn set_adrift(&mut self, which: impl Fn(&Flight<W>) -> bool) {
        for (flight, state) in self.all.iter_mut() {
            if *state == Interest::Awaited && which(flight) {
                *state = Interest::Adrift;
                self.adrift += 1;
            }
        }
    }
}
