//! What a queue knows of its signals: see [`ask`](super::ask).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_hal::batch::{POISON, QUANTUM};

use super::departure::Question;
use super::program::SignalWord;
use super::silence::Silence;
use crate::remote::RemoteRegion;
use crate::wire::Wire;

/// The time between two looks at queues that may be quiet.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How long the engine waits for signals that came before a failure.
pub(super) const FAILED: Duration = Duration::from_secs(1);
/// The pauses before a count is read again. Each is twice as long as the one before, from the first of these to the
/// second. After a failed read, the pause is the second.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(20));

/// A queue's knowledge of its signals.
pub(super) struct Doubt<W: Wire> {
    /// The word that the signals go to, once there has been one.
    word: Option<SignalWord<W>>,
    /// How many signals are through at this end.
    sent: u64,
    /// How many signals have arrived.
    come: u64,
    /// How many signals were through at the last tick.
    before: u64,
    /// Whether the queue is in the engine's list for ticks.
    pub(super) is_listed: bool,
    /// Whether the last read has failed.
    pub(super) is_refused: bool,
    state: Knowledge<W>,
    /// The memory that the count is read into.
    count_there: Arc<AtomicU64>,
}

enum Knowledge<W: Wire> {
    /// Nothing is being asked.
    Quiet,
    Asked(Inquiry),
    /// A signal is lost, or nothing can be known of it. The peer is told by this word, until it has been.
    Lost(Option<SignalWord<W>>),
}

/// An open question: how many signals have arrived.
pub(super) struct Inquiry {
    pub(super) step: InquiryStep,
    /// Since when it is known that something is wrong: a count was too low, or a read has failed.
    pub(super) since: Option<Silence>,
    /// The end of the pause.
    pub(super) due: Instant,
    pause: Duration,
    /// How many reads have failed.
    pub(super) refusals: u32,
}

/// The step of an inquiry.
pub(super) enum InquiryStep {
    /// The count is to be read.
    Due,
    /// The count is being read. This many signals were sent before.
    Reads(u64),
    /// The answer was open for too long, for this reason. A signal is lost if the peer is there, which the control
    /// plane was asked.
    Questions(Question, String),
}

/// A read of a count.
pub(super) struct Look<W: Wire> {
    pub(super) index: usize,
    pub(super) peer: usize,
    /// The memory that the read writes. It also identifies the queue, if another has got the number.
    pub(super) count_there: Arc<AtomicU64>,
    pub(super) _word: Arc<RemoteRegion<W>>,
}

impl<W: Wire> Doubt<W> {
    pub(super) fn new() -> Self {
        Doubt {
            word: None,
            sent: 0,
            come: 0,
            before: 0,
            is_listed: false,
            is_refused: false,
            state: Knowledge::Quiet,
            count_there: Arc::default(),
        }
    }

    /// Whether a signal is outstanding that may still come.
    pub(super) fn is_open(&self) -> bool {
        self.come < self.sent && !matches!(self.state, Knowledge::Lost(_))
    }

    /// Notes that a signal is through at this end.
    pub(super) fn adds(&mut self, word: impl FnOnce() -> SignalWord<W>) {
        self.word.get_or_insert_with(word);
        self.sent += 1;
    }

    /// Makes a tick. Returns whether no signal has come through since the last one.
    pub(super) fn is_quiet(&mut self) -> bool {
        std::mem::replace(&mut self.before, self.sent) == self.sent
    }

    /// Ends all questions.
    pub(super) fn rests(&mut self) {
        if let Knowledge::Asked(_) = self.state {
            self.state = Knowledge::Quiet;
        }
    }

    /// The open inquiry, if there is one.
    pub(super) fn inquiry(&mut self) -> Option<&mut Inquiry> {
        match &mut self.state {
            Knowledge::Asked(inquiry) => Some(inquiry),
            Knowledge::Quiet | Knowledge::Lost(_) => None,
        }
    }

    /// Begins an inquiry, unless a signal is lost.
    pub(super) fn begins(&mut self, now: Instant) -> Option<&mut Inquiry> {
        if let Knowledge::Quiet = self.state {
            self.state = Knowledge::Asked(Inquiry {
                step: InquiryStep::Due,
                since: None,
                due: now,
                pause: PAUSES.0,
                refusals: 0,
            });
        }
        self.inquiry()
    }

    /// The word that signals go to (its memory, and the offset there), and the address that its count is read into.
    pub(super) fn place(&self) -> (Arc<RemoteRegion<W>>, usize, *mut u8) {
        let word = self.word.as_ref().expect("a signal was sent");
        let (region, offset) = word.word.clone();
        (region, offset, self.count_there.as_ptr().cast())
    }

    /// The word that signals go to, once one was sent.
    pub(super) fn signalled(&self) -> Option<(Arc<RemoteRegion<W>>, usize)> {
        self.word.as_ref().map(|word| word.word.clone())
    }

    /// Notes that the count is being read. Returns the memory that the read writes.
    pub(super) fn reads(&mut self, now: Instant, silence: Duration) -> Arc<AtomicU64> {
        let sent = self.sent;
        if let Some(inquiry) = self.inquiry() {
            inquiry.step = InquiryStep::Reads(sent);
            if let Some(since) = &mut inquiry.since {
                since.look(now, silence);
            }
        }
        self.count_there.clone()
    }

    /// Whether a read was for this queue, and not for another one with the same number.
    pub(super) fn is_read_by(&self, look: &Look<W>) -> bool {
        Arc::ptr_eq(&self.count_there, &look.count_there)
    }

    /// Takes the result of a read.
    pub(super) fn has_read(&mut self, failed: Option<String>) -> Answer {
        self.is_refused = failed.is_some();
        let Knowledge::Asked(inquiry) = &mut self.state else {
            return failed.map_or(Answer::Stale, Answer::Unknown);
        };
        let sent = match inquiry.step {
            InquiryStep::Reads(sent) => Some(sent),
            InquiryStep::Due | InquiryStep::Questions(..) => None,
        };
        if sent.is_some() {
            inquiry.step = InquiryStep::Due;
        }
        if let Some(why) = failed {
            // It takes time until the connection is made again.
            inquiry.pause = PAUSES.1;
            inquiry.refusals += 1;
            return Answer::Unknown(why);
        }
        let Some(sent) = sent else {
            return Answer::Stale;
        };
        // Time without an answer does not count, because the peer may be stopped.
        if let Some(since) = &mut inquiry.since {
            since.skips(Instant::now());
        }
        let there = (self.count_there.load(Ordering::Relaxed) & !POISON) / QUANTUM;
        let first = self.word.as_ref().map_or(0, |word| word.first);
        let come = there.saturating_sub(first).min(self.sent);
        if std::mem::replace(&mut self.come, come) < come {
            inquiry.since = None;
        }
        if come < sent {
            return Answer::Unknown(format!("{} have not come", sent - come));
        }
        self.state = Knowledge::Quiet;
        Answer::Known
    }

    /// Declares a signal lost.
    pub(super) fn loses(&mut self) {
        self.state = Knowledge::Lost(self.word.clone());
    }

    /// The word by which to tell the peer that a signal was lost. It is returned once.
    pub(super) fn take_lost(&mut self) -> Option<SignalWord<W>> {
        match &mut self.state {
            Knowledge::Lost(word) => word.take(),
            Knowledge::Quiet | Knowledge::Asked(_) => None,
        }
    }
}

/// The result of a read.
pub(super) enum Answer {
    /// All signals that were sent before the read have arrived.
    Known,
    /// That is not known, for this reason.
    Unknown(String),
    /// The read does not belong to the open question.
    Stale,
}

impl Inquiry {
    /// Asks again after a pause.
    pub(super) fn pauses(&mut self) {
        self.due = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(PAUSES.1);
    }
}
