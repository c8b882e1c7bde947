//! Tickets: what a region waits for before it may be touched again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::nic::Keep;

use super::line::NicLine;
use crate::ground::lock;

/// What is about to be done to a region, or is still being done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    /// Or given away, to somebody who may write it.
    Write,
}

impl Touch {
    /// Whether one must wait for the other.
    fn collides(self, other: Touch) -> bool {
        self == Touch::Write || other == Touch::Write
    }
}

/// Not before the line has sent what its stream has issued.
#[derive(Clone)]
pub(crate) struct Ticket {
    line: Arc<NicLine>,
    /// What the NIC may still be doing.
    touch: Touch,
}

/// The tickets of one region. Made when a NIC first has to do with it.
pub(crate) struct Tickets {
    /// The region's memory, for programs.
    memory: Keep,
    /// Whether there are any. Regions are enqueued by one thread at a time, which sees what it wrote.
    any: AtomicBool,
    held: Mutex<Vec<Ticket>>,
}

impl Tickets {
    pub(crate) fn new(memory: Keep) -> Self {
        Tickets {
            memory,
            any: AtomicBool::new(false),
            held: Mutex::default(),
        }
    }

    /// The same tickets for another part of the memory, to be waited for (and forgotten) on its own.
    pub(crate) fn copy(&self) -> Self {
        let held = lock(&self.held).clone();
        Tickets {
            memory: self.memory.clone(),
            any: AtomicBool::new(!held.is_empty()),
            held: Mutex::new(held),
        }
    }

    /// Takes over those of another part of the memory.
    pub(crate) fn merge(&self, other: &Tickets) {
        let others = lock(&other.held).clone();
        for ticket in others {
            self.add(&ticket.line, ticket.touch);
        }
    }

    pub(crate) fn memory(&self) -> &Keep {
        &self.memory
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that a program is under way.
    pub(crate) fn add(&self, line: &Arc<NicLine>, touch: Touch) {
        // Dropped under no lock: the last of a line takes its register back, and calls the device.
        let mut over = Vec::new();
        let mut held = lock(&self.held);
        if !held
            .iter()
            .any(|ticket| ticket.touch == touch && ticket.line.is(line))
        {
            // Of a region that is only ever put, nobody asks for its tickets: those of windows that are gone must not pile up.
            over.extend(held.extract_if(.., |ticket| ticket.line.is_over()));
            let line = line.clone();
            held.push(Ticket { line, touch });
        }
        self.any.store(true, Ordering::Relaxed);
        drop(held);
        drop(over);
    }

    /// Adds the lines that stand against `touch`.
    pub(crate) fn gather(&self, touch: Touch, into: &mut Vec<Arc<NicLine>>) {
        for ticket in lock(&self.held).iter() {
            if touch.collides(ticket.touch) && !into.iter().any(|line| line.is(&ticket.line)) {
                into.push(ticket.line.clone());
            }
        }
    }

    /// The lines that read, in the order in which [`Tickets::gather`] finds them; those that are over are forgotten.
    pub(crate) fn readers(&self) -> Vec<Arc<NicLine>> {
        let mut held = lock(&self.held);
        // Dropped under no lock, as where one is added.
        let over: Vec<_> = held
            .extract_if(.., |ticket| ticket.line.is_over())
            .collect();
        let readers = held.iter().filter(|ticket| ticket.touch == Touch::Read);
        let readers = readers.map(|ticket| ticket.line.clone()).collect();
        self.any.store(!held.is_empty(), Ordering::Relaxed);
        drop(held);
        drop(over);
        readers
    }

    /// Forgets what [`Tickets::gather`] has found: the wait has been enqueued.
    pub(crate) fn clear(&self, touch: Touch) {
        let mut held = lock(&self.held);
        // Dropped under no lock, as where one is added.
        let found: Vec<_> = held
            .extract_if(.., |ticket| touch.collides(ticket.touch))
            .collect();
        self.any.store(!held.is_empty(), Ordering::Relaxed);
        drop(held);
        drop(found);
    }
}
