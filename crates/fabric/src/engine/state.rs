//! The engine's state: its parts, the operations in progress, and the work to be done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_hal::nic::Prepared;
use tidegate_hal::slots::TriggerSlots;

use super::firing::{Flight, Flights};
use super::gather::Pool;
use super::peers::Peers;
use super::poisoning::Poisoning;
use super::queues::{Agenda, Queues};
use super::rail::{Job, Rail};
use super::rest::Need;
use crate::strays::Strays;
use crate::wire::{Event, Wire};

/// The engine of an endpoint.
pub(crate) struct Engine<W: Wire> {
    // What lives as long as the endpoint.
    /// The wire is first, so that it is dropped first. Memory that may be accessed even then has been [handed
    /// over](super::bequest).
    pub(crate) wire: W,
    /// The other endpoints that send. They are dropped next, for the same reason.
    pub(crate) rails: Vec<Arc<Rail<W>>>,
    /// Counts events that belong to no operation.
    pub(super) strays: Arc<Strays>,
    /// Trigger slots, for all queues.
    pub(super) slots: Arc<TriggerSlots>,
    /// Trigger slots for answers: see [`answer`](super::answer).
    pub(super) answer_slots: Arc<TriggerSlots>,
    /// The buffers of operations that gather or scatter.
    pub(super) pool: Pool,

    // What is known, what is to be done, and what is under way.
    pub(super) peers: Peers,
    pub(super) queues: Queues<W>,
    pub(super) flights: Flights<W>,
    /// The poisonings that are to be sent.
    pub(super) poisonings: VecDeque<Poisoning<W>>,
    /// What is to be carried out when the answers of this turn have been posted.
    pub(super) served: Vec<u64>,

    // How it ends.
    /// Why the wire can no longer be used, until that has been reported.
    pub(super) failure: Option<String>,
    /// Set when the wire is broken.
    pub(super) wreck: Option<Wreck<W>>,
    /// Values that have come to their end. They are dropped when the engine has been let go.
    pub(super) ended: Ended<W>,

    // What a turn comes to.
    /// Counts operations that were posted, and events that came.
    pub(super) heard: u64,
    /// Whether the wire has refused something for now.
    pub(super) full: bool,
    /// Empty between polls.
    pub(super) events: Vec<Event>,
}

/// The operations in progress when the wire broke, and their programs. Their memory is kept until the endpoint is
/// closed.
pub(super) type Wreck<W> = (Vec<Flight<W>>, Vec<Prepared>);

/// Queues, and jobs of rails.
pub(super) type Ended<W> = (Vec<Agenda<W>>, Vec<Job>);

impl<W: Wire> Engine<W> {
    pub(super) fn new(
        wire: W,
        slots: Arc<TriggerSlots>,
        strays: Arc<Strays>,
        silence: Duration,
    ) -> Self {
        Engine {
            wire,
            rails: Vec::new(),
            strays,
            slots,
            answer_slots: Arc::new(TriggerSlots::new(usize::MAX)),
            pool: Pool::new(),
            peers: Peers::new(silence),
            queues: Queues::new(),
            flights: Flights::new(),
            poisonings: VecDeque::new(),
            served: Vec::new(),
            failure: None,
            wreck: None,
            ended: Default::default(),
            heard: 0,
            full: false,
            events: Vec::new(),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.wreck.is_some()
    }

    /// Why the listener is needed.
    pub(super) fn needs(&self) -> Need {
        let is_active = self.queues.are_active()
            || self.flights.are_awaited()
            || !self.poisonings.is_empty()
            || self.peers.departures.is_asking();
        match is_active {
            true => Need::Work,
            false if !self.queues.doubtful.is_empty() => Need::Doubts,
            false => Need::Nothing,
        }
    }

    /// Removes a queue that has come to its end.
    pub(super) fn end(&mut self, index: usize) {
        let agenda = self.queues.all.take(index);
        // Nobody asks any more, so the last answer ends the queue of the answers, too.
        if let Some(answers) = agenda.as_ref().and_then(|one| one.answers.as_ref()) {
            answers.queue.closed.store(true, Ordering::Release);
            self.queues.make_ready(answers.number);
        }
        self.ended.0.extend(agenda);
    }

    /// Notes that the wire has accepted something towards a peer.
    pub(super) fn taken_by(&mut self, peer: usize) {
        self.heard += 1;
        self.peers.contact.takes(peer);
    }

    /// Notes that the wire accepts nothing towards a peer for now. Returns the failure if that has been so for too
    /// long. (If too much is in progress, that is no fault of the peer.)
    pub(super) fn refused_by(&mut self, peer: usize) -> Option<String> {
        self.full = true;
        if self.has_too_much() {
            return None;
        }
        self.peers.contact.refuses(peer)
    }

    /// Whether as much is in progress as the wire accepts. Some of it must be about to end: operations that are adrift
    /// may take up room for ever, and then nothing else says that the wire accepts nothing.
    pub(super) fn has_too_much(&self) -> bool {
        let depth = self.wire.limits().depth;
        self.flights.posted() >= depth && self.flights.are_posted_awaited()
    }
}
