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

/// How often queues are looked at that may be quiet.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How long is waited for what came before a failure.
pub(super) const FAILED: Duration = Duration::from_secs(1);
/// Before a count is read again: each pause is twice as long as the one before, up to the second; so long is each
/// after a read that failed.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(20));

/// What a queue knows of its signals.
pub(super) struct Doubt<W: Wire> {
    /// Where they go, since the first of them.
    word: Option<SignalWord<W>>,
    /// How many are through at this end.
    sent: u64,
    /// How many have come.
    come: u64,
    /// How many were through at the last tick.
    before: u64,
    /// Whether the engine ticks for it.
    pub(super) is_listed: bool,
    /// The last read has failed.
    pub(super) is_refused: bool,
    state: Knowledge<W>,
    /// Where the count is read to.
    count_there: Arc<AtomicU64>,
}

enum Knowledge<W: Wire> {
    /// Nobody asks.
    Quiet,
    Asked(Inquiry),
    /// One will not come, or nothing can be known of it. The peer is to be told so by this word, until it has been.
    Lost(Option<SignalWord<W>>),
}

/// How many signals have come, as long as that is being found out.
pub(super) struct Inquiry {
    pub(super) step: InquiryStep,
    /// Since when it is known that something is wrong: a count was too low, or the read has failed.
    pub(super) since: Option<Silence>,
    /// Not before: a pause.
    pub(super) due: Instant,
    pause: Duration,
    /// How many reads have failed.
    pub(super) refusals: u32,
}

/// What an inquiry is at.
pub(super) enum InquiryStep {
    /// The count is to be read.
    Due,
    /// It is being read. So many signals were sent by then.
    Reads(u64),
    /// Nothing could be known for too long, and why. A signal is lost if the peer is there: that was asked.
    Questions(Question, String),
}

/// A read of a count.
pub(super) struct Look<W: Wire> {
    pub(super) index: usize,
    pub(super) peer: usize,
    /// Written by the read; and which queue this is, should the number have become another's.
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

    /// Whether a signal has not come that may come.
    pub(super) fn is_open(&self) -> bool {
        self.come < self.sent && !matches!(self.state, Knowledge::Lost(_))
    }

    /// A signal is through at this end.
    pub(super) fn adds(&mut self, word: impl FnOnce() -> SignalWord<W>) {
        self.word.get_or_insert_with(word);
        self.sent += 1;
    }

    /// Whether none has become through since the last tick. This is one.
    pub(super) fn is_quiet(&mut self) -> bool {
        std::mem::replace(&mut self.before, self.sent) == self.sent
    }

    /// Nobody need ask any more.
    pub(super) fn rests(&mut self) {
        if let Knowledge::Asked(_) = self.state {
            self.state = Knowledge::Quiet;
        }
    }

    /// What is being found out, if something is.
    pub(super) fn inquiry(&mut self) -> Option<&mut Inquiry> {
        match &mut self.state {
            Knowledge::Asked(inquiry) => Some(inquiry),
            Knowledge::Quiet | Knowledge::Lost(_) => None,
        }
    }

    /// What is being found out from now on, if nothing is lost.
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

    /// The word where signals go: its memory, and the offset there. And where its count is read to.
    pub(super) fn place(&self) -> (Arc<RemoteRegion<W>>, usize, *mut u8) {
        let word = self.word.as_ref().expect("a signal was sent");
        let (region, offset) = word.word.clone();
        (region, offset, self.count_there.as_ptr().cast())
    }

    /// The count is being read from this memory.
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

    /// Whether a read is of this count, and not of another queue's that had its number.
    pub(super) fn is_read_by(&self, look: &Look<W>) -> bool {
        Arc::ptr_eq(&self.count_there, &look.count_there)
    }

    /// The count has been read, or that has failed.
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
            // A connection takes its time to be made again.
            inquiry.pause = PAUSES.1;
            inquiry.refusals += 1;
            return Answer::Unknown(why);
        }
        let Some(sent) = sent else {
            return Answer::Stale;
        };
        // While nobody answers, nothing goes wrong: the peer may be stopped.
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

    /// A signal is lost.
    pub(super) fn loses(&mut self) {
        self.state = Knowledge::Lost(self.word.clone());
    }

    /// The word by which the peer is to be told that a signal was lost, once.
    pub(super) fn take_lost(&mut self) -> Option<SignalWord<W>> {
        match &mut self.state {
            Knowledge::Lost(word) => word.take(),
            Knowledge::Quiet | Knowledge::Asked(_) => None,
        }
    }
}

/// What a read says.
pub(super) enum Answer {
    /// All signals that were sent before it have come.
    Known,
    /// That is not known, and why.
    Unknown(String),
    /// It is no answer to what is asked now.
    Stale,
}

impl Inquiry {
    /// Asks again in a while.
    pub(super) fn pauses(&mut self) {
        self.due = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(PAUSES.1);
    }
}
