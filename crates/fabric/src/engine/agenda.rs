//! A queue, and what is to be done for it.

use std::sync::{Arc, Mutex};

use super::chained::Chained;
use super::doubt::Doubt;
use super::firing::Firing;
use super::queue::Queue;
use crate::wire::Wire;

/// A queue, and how far it is.
pub(super) struct Agenda<W: Wire> {
    pub(super) queue: Arc<Queue>,
    pub(super) state: State<W>,
    pub(super) doubt: Doubt<W>,
    /// Whether it is among the ready ones.
    pub(super) is_ready: bool,
}

/// What a queue is at.
pub(super) enum State<W: Wire> {
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
            state: chained.map_or(State::Idle, |chained| State::Chained { chained, is_busy }),
            doubt: Doubt::new(),
            is_ready: false,
        }
    }

    pub(super) fn firing(&self) -> Option<&Firing> {
        match &self.state {
            State::Firing(firing) => Some(firing),
            _ => None,
        }
    }

    /// Its firing, and the queue.
    pub(super) fn split(&mut self) -> Option<(&mut Firing, &Arc<Queue>)> {
        match &mut self.state {
            State::Firing(firing) => Some((firing, &self.queue)),
            _ => None,
        }
    }

    pub(super) fn chained(&self) -> Option<&Arc<Mutex<Chained<W>>>> {
        match &self.state {
            State::Chained { chained, .. } => Some(chained),
            _ => None,
        }
    }

    /// Whether a signal is in doubt that somebody may wait for.
    pub(super) fn is_in_doubt(&self) -> bool {
        let is_over = self.queue.departure().is_over();
        self.doubt.is_open() && !is_over && !self.queue.is_abandoned()
    }
}
