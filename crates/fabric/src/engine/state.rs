//! The engine: what is under way, and what is to be done.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::nic::Prepared;
use tidegate_hal::slots::Slots;

use super::agenda::Agenda;
use super::chained::Chained;
use super::contact::{Contact, Silent};
use super::departure::Departures;
use super::doubt::Doubt;
use super::firing::{Flight, Held};
use super::gather::Pool;
use super::poisoning::Poisoning;
use super::queue::Queue;
use super::rail::{Job, Rail};
use super::slab::Slab;
use crate::strays::Strays;
use crate::wire::{Event, Wire};

/// What is under way.
pub(crate) struct Engine<W: Wire> {
    /// First, so that it is dropped first; what may be read or written even then has been [handed over](super::bequest).
    pub(crate) wire: W,
    /// What sends besides it; likewise.
    pub(crate) rails: Vec<Arc<Rail<W>>>,
    /// Counts what has come that is over for nobody.
    pub(super) strays: Arc<Strays>,
    /// Trigger slots, for all queues.
    pub(super) slots: Arc<Slots>,
    pub(super) contact: Contact,
    pub(super) queues: Slab<Agenda<W>>,
    /// Those that have come to their end, to be dropped when the engine has been let go.
    pub(super) ended: Vec<Agenda<W>>,
    /// What rails were to post, likewise.
    pub(super) ended_jobs: Vec<Job<W>>,
    /// The queues that hardware fires.
    pub(super) chains: Vec<usize>,
    /// Something of a chain may be through.
    pub(super) moved: bool,
    /// By cookie.
    pub(super) flights: Slab<Flight<W>>,
    /// How many of these were handed to rails.
    pub(super) handed: usize,
    /// Where some of these read, and write.
    pub(super) pool: Pool,
    /// Queues to be taken as far as they go.
    pub(super) ready: Vec<usize>,
    /// Those that could not go on because the wire had no room.
    pub(super) stalled: Vec<usize>,
    /// Those whose next operation brings the signal with its data.
    pub(super) late: Vec<usize>,
    /// Signals that have no data, and are not posted yet.
    pub(super) held: Vec<Held>,
    /// How many queues have a firing.
    pub(super) firing: usize,
    /// Those of which that is stranded, and the cookies of what is under way for nobody: whoever listens need not stay
    /// awake for them.
    pub(super) stranded: usize,
    pub(super) adrift: HashSet<usize>,
    /// Queues whose signals are in doubt; also some where they are not any more.
    pub(super) doubtful: Vec<usize>,
    /// Those that are to be asked for again.
    pub(super) asking: Vec<usize>,
    /// How long a signal may take to come.
    pub(super) silence: Duration,
    pub(super) departures: Departures,
    /// Peers that may be gone, or have failed by their silence.
    pub(super) silent: Vec<Silent>,
    /// Poisonings that are to be sent.
    pub(super) notices: VecDeque<Poisoning<W>>,
    pub(super) events: Vec<Event>,
    pub(super) broken: bool,
    /// Why, until that has been said.
    pub(super) failure: Option<String>,
    /// What was under way when the wire broke, and whose: its memory is kept until the endpoint is closed.
    pub(super) dead: Vec<Flight<W>>,
    pub(super) dead_programs: Vec<Prepared>,
    /// How much has happened: operations were posted, events came.
    pub(super) heard: u64,
    /// The wire has refused something for now.
    pub(super) full: bool,
}

impl<W: Wire> Engine<W> {
    pub(super) fn new(wire: W, slots: Arc<Slots>, strays: Arc<Strays>, silence: Duration) -> Self {
        Engine {
            wire,
            strays,
            rails: Vec::new(),
            slots,
            contact: Contact::new(silence),
            queues: Slab::new(),
            ended: Vec::new(),
            chains: Vec::new(),
            moved: false,
            flights: Slab::new(),
            handed: 0,
            pool: Pool::new(),
            ready: Vec::new(),
            stalled: Vec::new(),
            late: Vec::new(),
            held: Vec::new(),
            firing: 0,
            stranded: 0,
            adrift: HashSet::new(),
            doubtful: Vec::new(),
            asking: Vec::new(),
            silence,
            departures: Departures::default(),
            silent: Vec::new(),
            notices: VecDeque::new(),
            events: Vec::new(),
            broken: false,
            failure: None,
            dead: Vec::new(),
            dead_programs: Vec::new(),
            ended_jobs: Vec::new(),
            heard: 0,
            full: false,
        }
    }

    pub(super) fn add(&mut self, queue: Arc<Queue>, chained: Option<Arc<Mutex<Chained<W>>>>) {
        let is_chained = chained.is_some();
        let number = self.queues.add(Agenda {
            queue,
            firing: None,
            doubt: Doubt::new(),
            fails: false,
            chained,
            busy: false,
            ready: false,
        });
        self.chains.extend(is_chained.then_some(number));
    }
}
