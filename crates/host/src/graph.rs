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

/// What one or several streams recorded together.
pub struct HostGraph {
    /// One list a stream, the capturing stream's first.
    pub(crate) lists: Vec<Arc<List>>,
}

/// What one stream recorded. Only the stream that replays it locks it, for the length of a replay.
pub(crate) type List = Mutex<Steps>;

#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) items: Vec<Recorded>,
    /// The stream has failed, and touches nothing of this any more.
    pub(crate) given_up: bool,
}

impl Steps {
    /// Takes its kernels out one by one, for each to be dropped where a panic is caught: a second panic while the first
    /// unwinds would end the process.
    pub(crate) fn take_kernels(&mut self) -> impl Iterator<Item = Job> {
        let items = std::mem::take(&mut self.items).into_iter();
        items.filter_map(|step| match step {
            Recorded::Kernel(job) => Some(job),
            _ => None,
        })
    }

    /// All of it has been given up once: says so to who waits for its links.
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

    /// Whether it waits for a stream that may be at work on its part still.
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
    /// With the place where it was recorded.
    Batch(Arc<Batch>, CallSite),
    Kernel(Job),
    Signal(Arc<Link>),
    Await(Arc<Link>, u64),
}

/// An event inside a recording: a word that each time of a replay adds to once, and each wait for it follows with an
/// operand of its own (kept beside the wait, in the list). A stream that has given up its list stops adding.
#[derive(Debug, Default)]
pub(crate) struct Link {
    word: WordCell,
    bell: Bell,
    /// Why the signalling stream has failed, if it has.
    fault: OnceLock<Fault>,
    /// It has given up its part of the recording, and touches nothing of it any more, whatever the word says. Released
    /// when that is so; a thread that acquires it may free what the part named.
    over: AtomicBool,
    /// The recording that it belongs to.
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

    /// The recording stream has come here; with a fault if it did nothing on the way.
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

    /// Waits for the next signal after `operand`, or until the signalling stream has given up; returns its fault, if it
    /// has failed. Never aborted: order holds on failed streams too, and every stream comes to its end.
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
