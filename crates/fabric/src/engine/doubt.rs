//! What a queue knows of its signals: see [`ask`](super::ask).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::departure::Question;
use super::program::SignalWord;
use super::silence::Silence;
use crate::remote::RemoteRegion;
use crate::wire::Wire;

/// How often queues are looked at that may be quiet.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How long is waited for what came before a failure.
pub(super) const FAILED: Duration = Duration::from_secs(1);

/// What a queue knows of its signals.
pub(super) struct Doubt<W: Wire> {
    /// Where they go, since the first of them.
    pub(super) signalled: Option<SignalWord<W>>,
    /// How many are through at this end.
    pub(super) count: u64,
    /// How many have come.
    pub(super) come: u64,
    /// How many there were at the last tick.
    pub(super) before: u64,
    /// Whether the engine ticks for it.
    pub(super) is_listed: bool,
    /// One will not come, or nothing can be known of it.
    pub(super) lost: bool,
    /// The last read has failed.
    pub(super) is_refused: bool,
    /// The peer is to be told that one was lost.
    pub(super) unreached: Option<SignalWord<W>>,
    pub(super) asked: Option<Asked>,
    /// Where the count is read to.
    pub(super) count_there: Arc<AtomicU64>,
}

/// A question that is not answered.
pub(super) struct Asked {
    /// Since when it is known that something is wrong: a count was too low, or the read has failed.
    pub(super) since: Option<Silence>,
    /// How many had been sent when the read was posted; none is under way otherwise.
    pub(super) reads: Option<u64>,
    /// Not before: a pause.
    pub(super) due: Instant,
    pub(super) pause: Duration,
    /// How many reads have failed.
    pub(super) refusals: u32,
    /// Nothing could be known for too long, and why. A signal is lost if the peer is there: that was asked.
    pub(super) question: Option<(Question, String)>,
}

impl<W: Wire> Doubt<W> {
    pub(super) fn new() -> Self {
        Doubt {
            signalled: None,
            count: 0,
            come: 0,
            before: 0,
            is_listed: false,
            lost: false,
            is_refused: false,
            unreached: None,
            asked: None,
            count_there: Arc::default(),
        }
    }
}

/// A read of a count.
pub(super) struct Look<W: Wire> {
    pub(super) index: usize,
    pub(super) peer: usize,
    /// Written by the read; and which queue this is, should the number have become another's.
    pub(super) count_there: Arc<AtomicU64>,
    pub(super) _word: Arc<RemoteRegion<W>>,
}
