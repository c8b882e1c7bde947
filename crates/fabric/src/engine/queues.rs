//! All queues, the state of each, and lists of the queues that have something to do.

use std::sync::{Arc, Mutex};

use tidegate_hal::nic::Prepared;

use super::chained::Chained;
use super::doubt::Doubt;
use super::firing::{Fate, Firing};
use super::queue::Queue;
use super::slab::Slab;
use crate::mail::Zeroed;
use crate::remote::RemoteRegion;
use crate::wire::Wire;

/// A queue, and its state.
pub(super) struct Agenda<W: Wire> {
    pub(super) queue: Arc<Queue>,
    pub(super) state: QueueState<W>,
    pub(super) doubt: Doubt<W>,
    /// Whether it is in the list of ready queues.
    pub(super) is_ready: bool,
    /// How many requests were sent.
    pub(super) requested: u64,
    /// The answers to the peer's requests, once one has come.
    pub(super) answers: Option<Answers<W>>,
}

/// The queue of the answers to a peer's requests, and its memory: see [`answer`](super::answer).
pub(super) struct Answers<W: Wire> {
    pub(super) queue: Arc<Queue>,
    /// Its number in the engine.
    pub(super) number: usize,
    pub(super) memory: Arc<Zeroed>,
    /// The peer's mail, and there: the notice of the word, its offset, and that of the room.
    pub(super) to: Arc<RemoteRegion<W>>,
    pub(super) place: (u64, usize, usize),
    /// How many requests were applied.
    pub(super) served: u64,
    /// The program for answers of so many bytes.
    pub(super) program: Option<(usize, Arc<[Prepared]>)>,
}

/// The state of a queue.
pub(super) enum QueueState<W: Wire> {
    /// Nothing is being fired.
    Idle,
    Firing(Firing),
    /// Nothing is fired any more. The queue gives up when none of its signals is in doubt.
    Failing,
    /// Hardware fires.
    Chained {
        chained: Arc<Mutex<Chained<W>>>,
        /// Whether hardware has something to do.
        is_busy: bool,
    },
}

impl<W: Wire> Agenda<W> {
    pub(super) fn new(queue: Arc<Queue>, chained: Option<Arc<Mutex<Chained<W>>>>) -> Self {
        let is_busy = false;
        Agenda {
            queue,
            state: chained.map_or(QueueState::Idle, |chained| QueueState::Chained {
                chained,
                is_busy,
            }),
            doubt: Doubt::new(),
            is_ready: false,
            requested: 0,
            answers: None,
        }
    }

    pub(super) fn firing(&self) -> Option<&Firing> {
        match &self.state {
            QueueState::Firing(firing) => Some(firing),
            _ => None,
        }
    }

    /// Its firing, and the queue.
    pub(super) fn split(&mut self) -> Option<(&mut Firing, &Arc<Queue>)> {
        match &mut self.state {
            QueueState::Firing(firing) => Some((firing, &self.queue)),
            _ => None,
        }
    }

    pub(super) fn chained(&self) -> Option<&Arc<Mutex<Chained<W>>>> {
        match &self.state {
            QueueState::Chained { chained, .. } => Some(chained),
            _ => None,
        }
    }

    /// Whether a signal is in doubt that somebody may wait for.
    pub(super) fn is_in_doubt(&self) -> bool {
        let is_over = self.queue.departure().is_over();
        self.doubt.is_open() && !is_over && !self.queue.is_abandoned()
    }
}

/// The signal of a queue's firing. It counts as an operation in progress.
#[derive(Clone, Copy)]
pub(super) struct LoneSignal {
    pub(super) queue: usize,
    pub(super) peer: usize,
    pub(super) notice: u64,
}

/// The queues, and lists of their numbers.
pub(super) struct Queues<W: Wire> {
    pub(super) all: Slab<Agenda<W>>,
    /// Queues that hardware fires.
    pub(super) chains: Vec<usize>,
    /// Queues that may go on.
    pub(super) ready: Vec<usize>,
    /// Queues that could not go on because the wire had no room.
    pub(super) stalled: Vec<usize>,
    /// Queues whose next operation brings the signal with its data.
    pub(super) late: Vec<usize>,
    /// Signals without data that are not posted yet.
    pub(super) signals: Vec<LoneSignal>,
    /// Queues whose signals are in doubt, and some whose signals are no longer.
    pub(super) doubtful: Vec<usize>,
    /// Queues whose signals must be asked for again.
    pub(super) asking: Vec<usize>,
    /// How many queues have a firing.
    firing: usize,
    /// How many of these firings are stranded. The listener need not stay awake for them.
    stranded: usize,
}

impl<W: Wire> Queues<W> {
    pub(super) fn new() -> Self {
        Queues {
            all: Slab::new(),
            chains: Vec::new(),
            ready: Vec::new(),
            stalled: Vec::new(),
            late: Vec::new(),
            signals: Vec::new(),
            doubtful: Vec::new(),
            asking: Vec::new(),
            firing: 0,
            stranded: 0,
        }
    }

    /// Adds a queue, and returns its number.
    pub(super) fn add(&mut self, agenda: Agenda<W>) -> usize {
        let is_chained = agenda.chained().is_some();
        let number = self.all.add(agenda);
        self.chains.extend(is_chained.then_some(number));
        number
    }

    /// A queue that has a firing, or something else that keeps it.
    pub(super) fn get(&mut self, index: usize) -> &mut Agenda<W> {
        self.all
            .get(index)
            .expect("a queue stays while something of it is under way")
    }

    /// The firing of a queue, and the queue.
    pub(super) fn firing(&mut self, index: usize) -> Option<(&mut Firing, &Arc<Queue>)> {
        self.all.get(index)?.split()
    }

    /// The queues towards a peer.
    pub(super) fn towards(&self, peer: usize) -> Vec<usize> {
        let is_theirs = |index: &usize| {
            self.all
                .at(*index)
                .is_some_and(|one| one.queue.peer == peer)
        };
        (0..self.all.numbers()).filter(is_theirs).collect()
    }

    pub(super) fn make_ready(&mut self, index: usize) {
        if let Some(agenda) = self.all.get(index)
            && !std::mem::replace(&mut agenda.is_ready, true)
        {
            self.ready.push(index);
        }
    }

    /// Begins a firing of an idle queue.
    pub(super) fn begins(&mut self, index: usize, firing: Firing) {
        self.get(index).state = QueueState::Firing(firing);
        self.firing += 1;
    }

    /// Ends a queue's firing. `then` is the queue's next state.
    pub(super) fn ends(&mut self, index: usize, then: QueueState<W>) -> Option<Firing> {
        let QueueState::Firing(firing) = std::mem::replace(&mut self.get(index).state, then) else {
            return None;
        };
        self.firing -= 1;
        self.stranded -= usize::from(firing.is_stranded);
        Some(firing)
    }

    /// Fails a queue. It gives up when none of its operations is in progress.
    pub(super) fn fail(&mut self, index: usize) {
        let agenda = self.get(index);
        match &mut agenda.state {
            QueueState::Firing(firing) => firing.fate = Fate::Failed,
            state => *state = QueueState::Failing,
        }
        self.make_ready(index);
    }

    /// Notes that the operations of a queue's firing will not end, and that nobody waits for them. The firing has
    /// failed, even if they end after all. Returns whether there are any.
    pub(super) fn strand(&mut self, index: usize) -> bool {
        let firing = self.firing(index).filter(|(one, _)| one.under_way > 0);
        let Some((firing, _)) = firing else {
            return false;
        };
        if !std::mem::replace(&mut firing.is_stranded, true) {
            firing.fate = Fate::Failed;
            self.stranded += 1;
        }
        true
    }

    /// Notes whether hardware has work for a queue.
    pub(super) fn set_busy(&mut self, index: usize, busy: bool) {
        if let QueueState::Chained { is_busy, .. } = &mut self.get(index).state {
            *is_busy = busy;
        }
    }

    /// Whether some queue has something in progress, or to do.
    pub(super) fn are_active(&self) -> bool {
        let is_busy = |&index: &usize| {
            let agenda = self.all.at(index);
            agenda.is_some_and(|one| matches!(one.state, QueueState::Chained { is_busy: true, .. }))
        };
        self.firing > self.stranded || !self.asking.is_empty() || self.chains.iter().any(is_busy)
    }
}
