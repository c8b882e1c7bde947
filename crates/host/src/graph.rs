//! Recordings: what streams would have done, to be replayed any number of times.
//!
//! # Failure
//!
//! A stream that fails passes its failure on through the links that it signals. It then goes through its list once
//! more, and gives up what is in it. (Poisoning a word twice does no harm.) From then on the list is *given up*: the
//! stream touches nothing of it any more, in no later replay either, and does not wait for streams that have given up
//! their lists.
//!
//! Until then, order holds: memory that was lent to the other stream may be freed once that stream has passed the
//! replay. So a stream that waits for a link waits until the link is signalled, or until the other stream has given up.
//! A stream that has failed goes on, replay by replay, as long as it waits for one that has not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tidegate_hal::batch::{Batch, QUANTUM};
use tidegate_hal::device::Fault;
use tidegate_hal::site::CallSite;
use tidegate_words::{Bell, Patience, State, Word};

use crate::job::Job;
use crate::reclaim::foreign;

/// A recording of one or several streams.
pub struct HostGraph {
    /// One list for each stream. The capturing stream's is the first.
    pub(crate) lists: Vec<Arc<List>>,
}

/// The items that one stream recorded. Only the stream that replays them locks the list, for the length of a replay.
pub(crate) type List = Mutex<Steps>;

#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) items: Vec<Recorded>,
    /// Whether the stream has failed, and will never touch the items again.
    pub(crate) given_up: bool,
}

impl Steps {
    /// Removes the kernels one by one, so that each can be dropped where a panic is caught. A second panic during the
    /// unwinding of a first would end the process.
    pub(crate) fn take_kernels(&mut self) -> impl Iterator<Item = Job> {
        let items = std::mem::take(&mut self.items).into_iter();
        items.filter_map(|step| match step {
            Recorded::Kernel(job) => Some(job),
            _ => None,
        })
    }

    /// Notes that everything has been given up, and tells the streams that wait for these links.
    pub(crate) fn give_up(&mut self) {
        if !std::mem::replace(&mut self.given_up, true) {
            for step in &self.items {
                if let Recorded::Signal(link) = step {
                    link.over.store(true, Ordering::Release);
                    link.bell.ring();
                }
            }
        }
    }

    /// Whether this list waits for a stream that may still be at work on its own list.
    pub(crate) fn awaits_work(&self) -> bool {
        let at_work = |step: &Recorded| matches!(step, Recorded::Await(link, _) if !link.is_over());
        self.items.iter().any(at_work)
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.take_kernels().for_each(|job| foreign(|| drop(job)));
    }
}

/// One recorded work item.
pub(crate) enum Recorded {
    /// A batch, and the call that recorded it.
    Batch(Arc<Batch>, CallSite),
    Kernel(Job),
    Signal(Arc<Link>),
    Await(Arc<Link>, u64),
}

impl Recorded {
    /// Whether it is a batch whose own work takes a microsecond or so.
    pub(crate) fn is_quick(&self) -> bool {
        matches!(self, Recorded::Batch(batch, _) if batch.is_quick())
    }
}

/// An event inside a recording. It is a word to which each repetition of a replay adds once. Each wait for it has an
/// operand of its own, which is kept beside the wait, in the list. A stream that has given up its list stops adding.
#[derive(Debug, Default)]
pub(crate) struct Link {
    word: WordCell,
    bell: Bell,
    /// Why the signalling stream has failed, if it has.
    fault: OnceLock<Fault>,
    /// Whether the signalling stream has given up its list, and will never touch it again, whatever the word says. Set
    /// with release order: a thread that acquires it may free the memory that the list names.
    over: AtomicBool,
    /// The number of the recording that the link belongs to.
    pub(crate) recording: u64,
}

#[derive(Debug)]
struct WordCell(Word);

impl Default for WordCell {
    fn default() -> Self {
        WordCell(Word::new(0))
    }
}

impl Link {
    pub(crate) fn of(recording: u64) -> Self {
        Link {
            recording,
            ..Link::default()
        }
    }

    /// Signals that the stream has come here. `fault` is set if it did nothing on the way.
    pub(crate) fn signal(&self, fault: Option<Fault>) {
        if let Some(fault) = fault {
            let _ = self.fault.set(fault);
        }
        self.word.0.add(QUANTUM);
        self.bell.ring();
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits for the next signal after `operand`, or until the signalling stream has given up. Returns that stream's
    /// fault, if it has failed. The wait is never aborted, because order holds on failed streams, too, and every stream
    /// comes to its end.
    pub(crate) fn follow(&self, operand: &mut u64, patience: Patience) -> Option<Fault> {
        let from = *operand;
        self.bell.wait(
            patience,
            || {
                let reached = self.word.0.look(from, QUANTUM) == State::Reached;
                (reached || self.is_over()).then_some(())
            },
            || {},
        );
        *operand = from + QUANTUM;
        self.fault.get().cloned()
    }
}
