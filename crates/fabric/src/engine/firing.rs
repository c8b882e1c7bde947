//! Firings of queues, and operations in progress.

use tidegate_hal::nic::Prepared;

use super::departure::Question;
use super::doubt::Look;
use super::gather::{Lent, Source};
use super::poisoning::Poisoning;
use super::program::script;
use super::queue::{Queue, Ring};
use super::silence::Silence;
use super::slab::Slab;
use crate::wire::Wire;

/// One execution of a program.
pub(super) struct Firing {
    pub(super) program: Prepared,
    pub(super) number: u64,
    pub(super) progress: Progress,
    /// How many of its operations are in progress. Its signal counts from the time when it is held.
    pub(super) under_way: usize,
    /// How many of these were handed to rails.
    pub(super) by_rails: usize,
    pub(super) fate: Fate,
    /// Whether its operations will never end, and nobody waits for them.
    pub(super) is_stranded: bool,
}

/// The progress of a firing.
pub(super) enum Progress {
    /// Its pieces are being posted, each when its part of the ring has come.
    Posting {
        ring: Ring,
        /// The index of the next piece.
        next: usize,
        /// Where the next piece's bytes are, if the wire has refused it so far.
        source: Option<Source>,
    },
    /// All pieces are delivered, and the peer is asked to update its elements: see [`converse`](super::converse).
    Requesting {
        /// The index of the request that is to be sent, or to be answered.
        next: usize,
        asked: Asked,
    },
    /// Everything is posted, except perhaps the signal, which is held.
    Signalled,
}

/// Whether a request was sent.
pub(super) enum Asked {
    /// Not yet. Its bytes are there if the wire has refused it so far.
    No(Option<Source>),
    /// It waits for its answer.
    Yes {
        since: Silence,
        /// The question whether the peer is there, if the answer has not come for long.
        question: Option<Question>,
    },
}

/// Whether a firing has failed.
pub(super) enum Fate {
    Well,
    /// Something has gone wrong, as the text says. It is a failure if the peer is there, which was asked. See
    /// [`departure`](super::departure).
    Asked(String, Question),
    /// It has failed, and will not signal.
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

    /// How much of its ring has come.
    pub(super) fn ring(&self) -> Ring {
        match self.progress {
            Progress::Posting { ring, .. } => ring,
            Progress::Requesting { .. } | Progress::Signalled => Ring::Whole,
        }
    }

    /// Looks how much of its ring has come by now.
    pub(super) fn look_at_ring(&mut self, queue: &Queue) {
        if let Progress::Posting { ring, .. } = &mut self.progress
            && let Ring::Parts(_) = ring
        {
            *ring = queue.ring_of(self.number);
        }
    }

    /// Whether more of its ring has come since the last look, or nobody waits for it any more.
    pub(super) fn is_called(&self, queue: &Queue) -> bool {
        match self.ring() {
            Ring::Parts(_) => queue.is_abandoned() || queue.ring_of(self.number) != self.ring(),
            Ring::Whole | Ring::Broken => false,
        }
    }

    /// Notes that an operation on this rail is over.
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

    /// Whether nobody here waits for data of this firing. (If its signal has gone out, everything that it asked for has
    /// arrived.)
    pub(super) fn only_sends<W: Wire>(&self) -> bool {
        let script = script::<W>(&self.program);
        let fetches = script.requests.as_ref().is_some_and(|all| all.fetch);
        self.has_signalled() || (script.asks == 0 && !fetches)
    }

    /// Whether it still has to ask for data.
    pub(super) fn is_to_ask<W: Wire>(&self) -> bool {
        let script = script::<W>(&self.program);
        let fetches = script.requests.as_ref().is_some_and(|all| all.fetch);
        match self.progress {
            Progress::Posting { next, .. } => next < script.asks || fetches,
            Progress::Requesting { .. } => fetches,
            Progress::Signalled => false,
        }
    }
}

/// An operation in progress.
pub(super) enum Flight<W: Wire> {
    /// A piece of a queue's firing, or its signal.
    Own {
        queue: usize,
        /// The queue whose signal is sent along.
        along: Option<usize>,
        lent: Option<Lent>,
    },
    /// A piece of a queue's firing that was handed to a rail.
    Handed {
        queue: usize,
        rail: usize,
    },
    Poisoning(Poisoning<W>),
    Look(Look<W>),
}

impl<W: Wire> Flight<W> {
    fn is_handed(&self) -> bool {
        matches!(self, Flight::Handed { .. })
    }
}

/// Whether the end of an operation matters.
#[derive(PartialEq, Eq)]
enum Interest {
    Awaited,
    /// Nobody waits for the end, because the peer is gone, and the operation may never end.
    Adrift,
}

/// All operations in progress.
pub(super) struct Flights<W: Wire> {
    all: Slab<(Flight<W>, Interest)>,
    /// How many of them were handed to rails.
    handed: usize,
    /// How many are adrift. The listener need not stay awake for them.
    adrift: usize,
    /// How many of these are on the engine's own endpoint.
    adrift_here: usize,
}

impl<W: Wire> Flights<W> {
    pub(super) fn new() -> Self {
        Flights {
            all: Slab::new(),
            handed: 0,
            adrift: 0,
            adrift_here: 0,
        }
    }

    /// The cookie of the next operation.
    pub(super) fn next(&self) -> u64 {
        self.all.next() as u64
    }

    pub(super) fn add(&mut self, flight: Flight<W>) {
        self.handed += usize::from(flight.is_handed());
        self.all.add((flight, Interest::Awaited));
    }

    /// Removes an operation that is over.
    pub(super) fn take(&mut self, cookie: u64) -> Option<Flight<W>> {
        let (flight, state) = self.all.take(cookie as usize)?;
        let (is_handed, is_adrift) = (flight.is_handed(), state == Interest::Adrift);
        self.handed -= usize::from(is_handed);
        self.adrift -= usize::from(is_adrift);
        self.adrift_here -= usize::from(is_adrift && !is_handed);
        Some(flight)
    }

    /// Removes all operations.
    pub(super) fn take_all(&mut self) -> Vec<Flight<W>> {
        (self.handed, self.adrift, self.adrift_here) = (0, 0, 0);
        self.all.take_all().map(|(flight, _)| flight).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight<W>> {
        self.all.iter().map(|(flight, _)| flight)
    }

    /// Whether the end of any of them matters.
    pub(super) fn are_awaited(&self) -> bool {
        self.all.len() > self.adrift
    }

    /// How many are in progress on the engine's own endpoint.
    pub(super) fn posted(&self) -> usize {
        self.all.len() - self.handed
    }

    /// Whether the end of any of these matters.
    pub(super) fn are_posted_awaited(&self) -> bool {
        self.posted() > self.adrift_here
    }

    /// Notes that nobody waits for these any more.
    pub(super) fn set_adrift(&mut self, which: impl Fn(&Flight<W>) -> bool) {
        for (flight, state) in self.all.iter_mut() {
            if *state == Interest::Awaited && which(flight) {
                *state = Interest::Adrift;
                self.adrift += 1;
                self.adrift_here += usize::from(!flight.is_handed());
            }
        }
    }
}
