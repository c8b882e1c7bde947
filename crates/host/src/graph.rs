//! Recordings: what streams would have done, to be done any number of times.
//!
//! # Failure
//!
//! A stream that fails goes through its list once more, giving up what is in it, and leaves out the times that are left:
//! words that are poisoned twice are as if they were once. What is left of the order between two streams of a recording
//! is this: whoever waits for a link of a stream that has *failed for good* does not wait, since that stream touches
//! nothing any more; and a stream that has failed itself goes on as long as it awaits one that has not, time by time.
//! Else it would be through, and what was lent to it be freed, while the other still works there.

use std::sync::{Arc, Mutex, OnceLock};

use tidegate_hal::batch::{Batch, QUANTUM};
use tidegate_hal::device::Fault;
use tidegate_words::{Bell, Patience, State, Word};

use crate::job::Job;

/// What one or several streams recorded together.
pub struct HostGraph {
    /// One list a stream, the capturing stream's first.
    pub(crate) lists: Vec<Arc<List>>,
}

/// What one stream recorded. Only the stream that replays it locks it, for the length of a replay.
pub(crate) type List = Mutex<Vec<Recorded>>;

/// One recorded work item.
pub(crate) enum Recorded {
    Batch(Arc<Batch>),
    Kernel(Job),
    Signal(Arc<Link>),
    Await(Arc<Link>, u64),
}

impl Recorded {
    /// Whether it waits for a stream that may be at work still.
    pub(crate) fn awaits_work(&self) -> bool {
        matches!(self, Recorded::Await(link, _) if link.fault.get().is_none())
    }
}

/// An event inside a recording: a word that each time of a replay adds to once, and each wait for it follows with an
/// operand of its own (kept beside the wait, in the list). A stream that has failed stops adding.
#[derive(Debug, Default)]
pub(crate) struct Link {
    word: WordCell,
    bell: Bell,
    /// Why the signalling stream does no more work, if it does not: for good, whatever the word says.
    fault: OnceLock<Fault>,
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

    /// Waits for the next signal after `operand`, or until the signalling stream has failed; returns its fault then.
    /// Never aborted: order holds on failed streams too, and every stream comes to its end.
    pub(crate) fn follow(&self, operand: &mut u64, patience: Patience) -> Option<Fault> {
        let from = *operand;
        self.bell.wait(
            patience,
            || {
                let reached = self.word.0.look(from, QUANTUM) == State::Reached;
                (reached || self.fault.get().is_some()).then_some(())
            },
            || {},
        );
        *operand = from + QUANTUM;
        self.fault.get().cloned()
    }
}
