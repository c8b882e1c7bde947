//! Operations that are under way, by their cookies.

use super::doubt::Look;
use super::gather::Lent;
use super::poisoning::Poisoning;
use super::slab::Slab;
use crate::wire::Wire;

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
enum State {
    Awaited,
    /// Its peer is gone, so it may never end, and nobody waits for that.
    Adrift,
}

/// All operations that are under way.
pub(super) struct Flights<W: Wire> {
    all: Slab<(Flight<W>, State)>,
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
        self.all.add((flight, State::Awaited));
    }

    /// An operation is over.
    pub(super) fn take(&mut self, cookie: u64) -> Option<Flight<W>> {
        let (flight, state) = self.all.take(cookie as usize)?;
        self.handed -= usize::from(matches!(flight, Flight::Handed { .. }));
        self.adrift -= usize::from(state == State::Adrift);
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
            if *state == State::Awaited && which(flight) {
                *state = State::Adrift;
                self.adrift += 1;
            }
        }
    }
}
