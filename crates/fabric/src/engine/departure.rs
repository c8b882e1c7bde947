//! What has become of a peer, and what that means for transfers that fail.
//!
//! # Model
//!
//! From here, the end of a peer's endpoint looks like a failure. It may be seen before the control plane says that the
//! peer has left or died. So a failed transfer has no cause at first. It is *held*: its queue neither ends nor goes on.
//! The engine asks the control plane whether the peer is there, and its answer is the cause:
//!
//! - The peer is [there](tidegate_hal::nic::News::There), and was after the failure: the network has failed.
//! - It *leaves* in good order: a transfer that fails meanwhile waits until it has left. Nobody there is told of a
//!   failure.
//! - It *has left*, and what it sent last has been carried out here. It had received everything that it waited for. So
//!   programs that only send are through, now and later, as soon as nothing of them is in progress. Nothing more goes
//!   to the peer, and it is not asked anything ([`ask`](super::ask)). A get from it has failed, and so does one that is
//!   rung for later.
//! - It is *lost*: its queues give up. Core has reported why.
//!
//! An answer says nothing about failures that come after the question was sent; they need another question. There is
//! one question at a time to each peer, so failures that come together share the next one.
//!
//! There is one [`Departure`] for each peer. The engine and the threads of its rails all look at that one, so they
//! cannot disagree, and a queue that is made late behaves as the others.
//!
//! # Failure
//!
//! The control plane gives up a silent rank, so a question is answered within its limit. If no answer comes within the
//! wire's limit, which is no shorter, the network has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tidegate_hal::tell;

use super::silence::Silence;

/// The stage of a peer's departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// No departure is known.
    Here,
    /// The peer is leaving.
    Leaving,
    /// The peer has left.
    Left,
    /// The peer has died, or was given up.
    Lost,
}

impl Stage {
    /// Whether the peer accepts and answers nothing any more.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Stage::Left | Stage::Lost)
    }

    /// Logs that something towards the peer has gone wrong. It is an error if the peer is there, or if only the peer
    /// could have brought the data. (Core has already reported the loss of a peer.)
    pub(super) fn says(self, only_sends: bool, what: &str) {
        match self {
            Stage::Leaving | Stage::Left if only_sends => {
                tell(|| tracing::debug!("while it leaves: {what}"));
            }
            Stage::Lost => tell(|| tracing::debug!("it is lost: {what}")),
            _ => tell(|| tracing::error!("{what}")),
        }
    }
}

/// The failure of a get that is rung for when its peer has left.
pub(super) fn never_comes(peer: usize) -> String {
    format!("a transfer from rank {peer} failed: it has left")
}

/// The departure of one peer.
#[derive(Default)]
pub(crate) struct Departure(AtomicU8);

impl Departure {
    pub(crate) fn stage(&self) -> Stage {
        match self.0.load(Ordering::Acquire) {
            0 => Stage::Here,
            1 => Stage::Leaving,
            2 => Stage::Left,
            _ => Stage::Lost,
        }
    }

    /// Moves on to a stage; a later stage stays. To be called under the engine's lock, so that the stage does not
    /// change while a thread holds that.
    fn comes_to(&self, stage: Stage) {
        self.0.fetch_max(stage as u8, Ordering::Release);
    }
}

/// The number of the answer that a failure towards a peer waits for. A later answer will do, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    peer: usize,
    number: u64,
}

/// The questions about one peer.
#[derive(Default)]
struct Known {
    departure: Arc<Departure>,
    /// How many questions failures need, how many were asked, and how many of those are answered. One is asked at a
    /// time, so each of these numbers is at most one ahead of the next.
    wanted: u64,
    asked: u64,
    answered: u64,
    /// The time since the last question was asked, while it is open.
    since: Option<Silence>,
}

/// The questions about all peers, by rank.
#[derive(Default)]
pub(super) struct Departures {
    known: Vec<Known>,
    /// The peers with open questions.
    open: Vec<usize>,
}

impl Departures {
    fn known(&mut self, peer: usize) -> &mut Known {
        if self.known.len() <= peer {
            self.known.resize_with(peer + 1, Known::default);
        }
        &mut self.known[peer]
    }

    pub(super) fn of(&mut self, peer: usize) -> &Arc<Departure> {
        &self.known(peer).departure
    }

    /// Notes a peer's stage of departure, which answers all questions about it.
    pub(super) fn comes_to(&mut self, peer: usize, stage: Stage) {
        self.of(peer).comes_to(stage);
        self.open.retain(|open| *open != peer);
    }

    /// The question that a failure of this moment waits for.
    pub(super) fn question(&mut self, peer: usize) -> Question {
        let known = self.known(peer);
        // Earlier questions were asked before the failure.
        known.wanted = known.asked + 1;
        let number = known.wanted;
        if known.departure.stage() == Stage::Here && !self.open.contains(&peer) {
            self.open.push(peer);
        }
        Question { peer, number }
    }

    /// Whether it is known that the peer was there after the failure, or no answer has come for too long.
    pub(super) fn is_answered(&self, question: Question) -> bool {
        let known = self.known.get(question.peer);
        known.is_some_and(|known| known.answered >= question.number)
    }

    /// Whether some question is open.
    pub(super) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    /// The questions to ask now: each peer, and the number of the question. They count as asked.
    pub(super) fn take_due(&mut self) -> Vec<(usize, u64)> {
        let Departures { known, open } = self;
        let asks = |peer: &usize| {
            let known = &mut known[*peer];
            let due = known.asked == known.answered && known.wanted > known.asked;
            due.then(|| {
                known.asked += 1;
                known.since = Some(Silence::new());
                (*peer, known.asked)
            })
        };
        open.iter().filter_map(asks).collect()
    }

    /// Notes a peer's answer to the question of this number. Returns whether that question was open.
    pub(super) fn answers(&mut self, peer: usize, number: u64) -> bool {
        let known = self.known(peer);
        let is_new = known.since.is_some() && number == known.asked;
        if is_new {
            self.closes(peer);
        }
        is_new
    }

    /// Closes the last question about a peer.
    fn closes(&mut self, peer: usize) {
        let known = self.known(peer);
        (known.answered, known.since) = (known.asked, None);
        if known.wanted == known.answered {
            self.open.retain(|open| *open != peer);
        }
    }

    /// The peers about which no answer has come within the limit. Their failures wait no longer.
    pub(super) fn overdue(&mut self, limit: Duration) -> Vec<usize> {
        let Departures { known, open } = self;
        if open.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let is_over = |peer: &usize| {
            let since = known[*peer].since.as_mut();
            since.is_some_and(|since| since.look(now, limit))
        };
        let over: Vec<_> = open.iter().copied().filter(is_over).collect();
        over.iter().for_each(|peer| self.closes(*peer));
        over
    }
}

/// How long a departure waits for the threads that receive. A busy machine may keep the processor from such a thread
/// while it holds what the peer sent last; this is longer than that.
const ROUNDS: Duration = Duration::from_secs(2);
/// How often the listener then looks at least, and for how long at most if others go on sending.
const LAST: (usize, Duration) = (10, Duration::from_millis(100));
/// A peer that has left in good order, according to the control plane.
pub(super) struct Parting {
    pub(super) peer: usize,
    /// For each thread that receives: how often it had looked when the news came.
    pub(super) rounds: Vec<u64>,
    pub(super) since: Instant,
    /// When all of them had looked, how often the listener has looked since then, and how much had been received by
    /// then.
    pub(super) last: Option<(Instant, usize, u64)>,
    pub(super) then: Box<dyn FnOnce() + Send>,
}

impl Parting {
    /// Whether everything that the peer has sent is done. `rounds` and `heard` are the current numbers.
    pub(super) fn is_over(&mut self, rounds: &[u64], heard: u64) -> bool {
        let came = |(now, then): (&u64, &u64)| *now >= then + 2;
        match &mut self.last {
            None => {
                if rounds.iter().zip(&self.rounds).all(came) || self.since.elapsed() >= ROUNDS {
                    self.last = Some((Instant::now(), 0, heard));
                }
                false
            }
            Some((since, looks, before)) => {
                *looks += 1;
                let is_quiet = std::mem::replace(before, heard) == heard;
                is_quiet || (*looks >= LAST.0 && since.elapsed() >= LAST.1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_has_left_stays_so_for_all_observers() {
        let mut departures = Departures::default();
        let before = departures.of(3).clone();
        assert_eq!(before.stage(), Stage::Here);
        departures.comes_to(3, Stage::Leaving);
        assert_eq!(before.stage(), Stage::Leaving);
        departures.comes_to(3, Stage::Left);
        // The same news comes once more.
        departures.comes_to(3, Stage::Leaving);
        let after = departures.of(3).clone();
        assert_eq!((before.stage(), after.stage()), (Stage::Left, Stage::Left));
        assert_eq!(departures.of(2).stage(), Stage::Here);
    }

    #[test]
    fn an_answer_is_for_failures_before_its_question() {
        let mut departures = Departures::default();
        let first = departures.question(2);
        let along = departures.question(2);
        assert_eq!(departures.take_due(), [(2, 1)]);
        assert_eq!(departures.take_due(), []);
        // This failure comes after the question was asked, so its own question goes out when this one is answered.
        let later = departures.question(2);
        assert_eq!(departures.take_due(), []);
        let answered = |departures: &Departures| {
            [first, along, later].map(|question| departures.is_answered(question))
        };
        assert!(!departures.answers(2, 7) && !departures.answers(1, 1));
        assert_eq!(answered(&departures), [false; 3]);
        assert!(departures.answers(2, 1));
        assert_eq!(answered(&departures), [true, true, false]);
        assert!(!departures.answers(2, 1), "once more");
        assert_eq!(departures.take_due(), [(2, 2)]);
        assert!(departures.answers(2, 2));
        assert_eq!(answered(&departures), [true; 3]);
        assert!(!departures.is_asking());
    }

    #[test]
    fn a_departure_is_an_answer() {
        for stage in [Stage::Leaving, Stage::Left, Stage::Lost] {
            let mut departures = Departures::default();
            let before = departures.question(0);
            assert_eq!(departures.take_due(), [(0, 1)]);
            departures.comes_to(0, stage);
            assert!(!departures.is_asking() && !departures.is_answered(before));
            // A peer that does not answer is not asked again.
            departures.question(0);
            assert_eq!(departures.take_due(), []);
        }
    }

    #[test]
    fn a_question_has_an_end() {
        let limit = Duration::from_secs(60);
        let mut departures = Departures::default();
        let question = departures.question(1);
        assert!(departures.overdue(limit).is_empty());
        departures.take_due();
        assert!(departures.overdue(limit).is_empty());
        departures.known[1].since.as_mut().unwrap().lasts(2 * limit);
        assert_eq!(departures.overdue(limit), [1]);
        assert!(departures.is_answered(question) && !departures.is_asking());
        // A late answer does not answer the next question.
        let next = departures.question(1);
        assert_eq!(departures.take_due(), [(1, 2)]);
        assert!(!departures.answers(1, 1) && !departures.is_answered(next));
    }
}
