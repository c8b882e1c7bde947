//! Tickets: the operations of a NIC that a region must wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::nic::Keep;

use super::line::NicLine;
use crate::ground::lock;

/// How a region is about to be used, or is still being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    /// The region is written, or given away to a user that may write it.
    Write,
}

impl Touch {
    /// Whether one use must wait for the other.
    fn collides(self, other: Touch) -> bool {
        self == Touch::Write || other == Touch::Write
    }
}

/// A ticket: a use of the region that ends when the line has sent what its stream has issued.
#[derive(Clone)]
pub(crate) struct Ticket {
    line: Arc<NicLine>,
    /// How the NIC may still use the region.
    touch: Touch,
}

/// The tickets of one region, made when a NIC first uses it.
pub(crate) struct Tickets {
    /// The region's memory, which programs keep alive.
    memory: Keep,
    /// Whether there are any tickets. Only one thread at a time enqueues with a region, and it sees what it wrote.
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

    /// The same tickets for another part of the memory, which waits for them and forgets them on its own.
    pub(crate) fn copy(&self) -> Self {
        let held = lock(&self.held).clone();
        Tickets {
            memory: self.memory.clone(),
            any: AtomicBool::new(!held.is_empty()),
            held: Mutex::new(held),
        }
    }

    /// Takes over the tickets of another part of the memory.
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

    /// Notes that a program has been enqueued.
    pub(crate) fn add(&self, line: &Arc<NicLine>, touch: Touch) {
        // These are dropped without the lock: the last holder of a line returns its register, which calls the device.
        let mut over = Vec::new();
        let mut held = lock(&self.held);
        if !held
            .iter()
            .any(|ticket| ticket.touch == touch && ticket.line.is(line))
        {
            // If a region is only ever put, nothing asks for its tickets. Those of windows that are gone must not pile
            // up.
            over.extend(held.extract_if(.., |ticket| ticket.line.is_over()));
            let line = line.clone();
            held.push(Ticket { line, touch });
        }
        self.any.store(true, Ordering::Relaxed);
        drop(held);
        drop(over);
    }

    /// Adds the lines whose tickets conflict with `touch`.
    pub(crate) fn gather(&self, touch: Touch, into: &mut Vec<Arc<NicLine>>) {
        for ticket in lock(&self.held).iter() {
            if touch.collides(ticket.touch) && !into.iter().any(|line| line.is(&ticket.line)) {
                into.push(ticket.line.clone());
            }
        }
    }

    /// The lines that read the region, in the order of [`Tickets::gather`]. Lines that are over are forgotten.
    pub(crate) fn readers(&self) -> Vec<Arc<NicLine>> {
        let mut held = lock(&self.held);
        // These are dropped without the lock, as in `add`.
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

    /// Forgets the tickets that [`Tickets::gather`] found, because the wait for them has been enqueued.
    pub(crate) fn clear(&self, touch: Touch) {
        let mut held = lock(&self.held);
        // These are dropped without the lock, as in `add`.
        let found: Vec<_> = held
            .extract_if(.., |ticket| touch.collides(ticket.touch))
            .collect();
        self.any.store(!held.is_empty(), Ordering::Relaxed);
        drop(held);
        drop(found);
    }
}
