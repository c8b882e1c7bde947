//! All queues, what each is at, and lists of those for which there is something to do.

use std::sync::{Arc, Mutex};

use super::chained::Chained;
use super::doubt::Doubt;
use super::firing::{Fate, Firing};
use super::queue::Queue;
use super::slab::Slab;
use crate::wire::Wire;

/// A queue, and how far it is.
pub(super) struct Agenda<W: Wire> {
    pub(super) queue: Arc<Queue>,
    pub(super) state: QueueState<W>,
    pub(super) doubt: Doubt<W>,
    /// Whether it is among the ready ones.
    pub(super) is_ready: bool,
}

/// What a queue is at.
pub(super) enum QueueState<W: Wire> {
    /// Nothing is being fired.
    Idle,
    Firing(Firing),
    /// Nothing is fired any more. It gives up when none of its signals is in doubt.
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

/// The signal of a queue's firing, which counts as under way.
#[derive(Clone, Copy)]
pub(super) struct LoneSignal {
    pub(super) queue: usize,
    pub(super) peer: usize,
    pub(super) notice: u64,
}

/// The queues, and lists of their numbers.
pub(super) struct Queues<W: Wire> {
    pub(super) all: Slab<Agenda<W>>,
    /// Those that hardware fires.
    pub(super) chains: Vec<usize>,
    /// Those to be taken as far as they go.
    pub(super) ready: Vec<usize>,
    /// Those that could not go on because the wire had no room.
    pub(super) stalled: Vec<usize>,
    /// Those whose next operation brings the signal with its data.
    pub(super) late: Vec<usize>,
    /// Signals that have no data, and are not posted yet.
    pub(super) signals: Vec<LoneSignal>,
    /// Those whose signals are in doubt; also some where they are not any more.
    pub(super) doubtful: Vec<usize>,
    /// Those that are to be asked for again.
    pub(super) asking: Vec<usize>,
    /// How many have a firing.
    firing: usize,
    /// How many have one that is stranded: the listener need not stay awake for them.
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

    pub(super) fn add(&mut self, agenda: Agenda<W>) {
        let is_chained = agenda.chained().is_some();
        let number = self.all.add(agenda);
        self.chains.extend(is_chained.then_some(number));
    }

    /// One that has a firing, or something else that keeps it.
    pub(super) fn get(&mut self, index: usize) -> &mut Agenda<W> {
        self.all
            .get(index)
            .expect("a queue stays while something of it is under way")
    }

    /// The firing that one has, and whose it is.
    pub(super) fn firing(&mut self, index: usize) -> Option<(&mut Firing, &Arc<Queue>)> {
        self.all.get(index)?.split()
    }

    /// Those towards a peer.
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

    /// An idle queue fires.
    pub(super) fn begins(&mut self, index: usize, firing: Firing) {
        self.get(index).state = QueueState::Firing(firing);
        self.firing += 1;
    }

    /// A queue's firing is over; what the queue is at then.
    pub(super) fn ends(&mut self, index: usize, then: QueueState<W>) -> Option<Firing> {
        let QueueState::Firing(firing) = std::mem::replace(&mut self.get(index).state, then) else {
            return None;
        };
        self.firing -= 1;
        self.stranded -= usize::from(firing.is_stranded);
        Some(firing)
    }

    /// A queue cannot go on: it gives up when nothing of it is under way.
    pub(super) fn fail(&mut self, index: usize) {
        let agenda = self.get(index);
        match &mut agenda.state {
            QueueState::Firing(firing) => firing.fate = Fate::Failed,
            state => *state = QueueState::Failing,
        }
        self.make_ready(index);
    }

    /// What a queue's firing has under way does not end, and nobody waits for that. Whether there is something.
    pub(super) fn strand(&mut self, index: usize) -> bool {
        let firing = self.firing(index).filter(|(one, _)| one.under_way > 0);
        let Some((firing, _)) = firing else {
            return false;
        };
        if !std::mem::replace(&mut firing.is_stranded, true) {
            self.stranded += 1;
        }
        true
    }

    /// How many programs are armed by queues of which something is stranded.
    pub(super) fn armed_in_vain(&self) -> usize {
        if self.stranded == 0 {
            return 0;
        }
        let is_stranded = |one: &&Agenda<W>| one.firing().is_some_and(|one| one.is_stranded);
        let stranded = self.all.iter().filter(is_stranded);
        stranded.map(|one| one.queue.armed_now()).sum::<u64>() as usize
    }

    /// Whether hardware has something to do for one.
    pub(super) fn set_busy(&mut self, index: usize, busy: bool) {
        if let QueueState::Chained { is_busy, .. } = &mut self.get(index).state {
            *is_busy = busy;
        }
    }

    /// Whether something of them is under way, or is to be.
    pub(super) fn are_active(&self) -> bool {
        let is_busy = |&index: &usize| {
            let agenda = self.all.at(index);
            agenda.is_some_and(|one| matches!(one.state, QueueState::Chained { is_busy: true, .. }))
        };
        self.firing > self.stranded || !self.asking.is_empty() || self.chains.iter().any(is_busy)
    }
}
