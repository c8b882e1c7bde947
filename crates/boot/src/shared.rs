//! The state that the program's threads and the service of one rank share.

use crate::desks::Desks;
use crate::ends::Ends;
use crate::error::BootError;
use crate::events::Events;
use crate::mail::{Fds, Mail};
use crate::wire::Message;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use tidegate_hal::control::Event;
use tidegate_hal::lock;

/// A letter on its way to the hub.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: usize,
    pub(crate) round: u64,
    pub(crate) bytes: Vec<u8>,
    /// Descriptors for a rank of this node.
    pub(crate) fds: Vec<Arc<OwnedFd>>,
}

/// A request of the program to the service.
#[derive(Debug)]
pub(crate) enum ServiceRequest {
    Write(Outgoing),
    Say(Message),
    /// `Leave` or `Fail`. `Fail` may follow `Leave`.
    End(Message),
    /// This rank has left, and will not report a failure any more.
    Over,
}

#[derive(Debug)]
pub(crate) enum RankPhase {
    Joining,
    Running,
    /// The others know, or will know, that this rank has ended. Its service may still run.
    Left,
    /// The reason, until a caller takes it.
    Failed(Option<BootError>),
    Closed,
}

impl RankState {
    /// The message that this rank fails, and because of which rank.
    pub(crate) fn failure(&self, rank: usize, reason: &str) -> Message {
        match &self.follows {
            Some((first, why)) if *first != rank => Message::Fail {
                reason: format!("{reason}, since {why}"),
                first: Some(*first as u32),
            },
            _ => Message::Fail {
                reason: reason.to_owned(),
                first: None,
            },
        }
    }
}

impl RankPhase {
    pub(crate) fn is_joining(&self) -> bool {
        matches!(self, RankPhase::Joining)
    }
}

#[derive(Debug)]
pub(crate) struct RankState {
    pub(crate) phase: RankPhase,
    pub(crate) nodes: Vec<usize>,
    pub(crate) desks: Desks,
    /// Why no collective call is possible any more, in no team.
    pub(crate) no_calls: Option<String>,
    /// Why no message can be sent any more.
    pub(crate) no_message: Option<String>,
    pub(crate) gone: Vec<bool>,
    /// Whether this rank has said that it failed.
    pub(crate) failed: bool,
    /// Whether rank 0 has confirmed that this rank ends. It may still wait for those below it.
    pub(crate) confirmed: bool,
    /// Why this rank's program fails, if it does: the rank that was the first to fail, perhaps this one, and the text
    /// about it.
    follows: Option<(usize, String)>,
    /// For each lost rank, the rank because of which it failed: itself, or another one.
    firsts: HashMap<usize, usize>,
    /// On rank 0, after it has left: the ranks that its control plane still serves.
    pub(crate) remain: Vec<usize>,
    /// Why rank 0 was lost, if that is known.
    hub_end: Option<String>,
    pub(crate) requests: VecDeque<ServiceRequest>,
    /// The program does not wait for the service any longer.
    pub(crate) abandoned: bool,
}

/// Why a wait for the end of a service has ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Late,
    Stuck,
}

pub(crate) struct RankShared {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) state: Mutex<RankState>,
    pub(crate) changed: Condvar,
    pub(crate) events: Events,
    /// Where the launcher reads which rank's failure was first.
    pub(crate) ends: Option<Ends>,
    /// Wakes the service.
    pub(crate) wake: OwnedFd,
    service: OnceLock<Served>,
    /// How often the service has taken a turn, with or without work.
    turns: AtomicU64,
    /// The messages that this rank has sent to the hub, and received from it.
    #[cfg(test)]
    pub(crate) messages: AtomicU64,
}

/// The service of a rank.
struct Served {
    thread: ThreadId,
    /// The longest time between two turns of the service.
    turn: Duration,
    /// After so many of these without a turn, the service is stuck.
    patience: u32,
    /// How long rank 0 may be silent.
    silence: Duration,
}

impl RankShared {
    pub(crate) fn new(rank: usize, size: usize) -> std::io::Result<Self> {
        Ok(Self {
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            rank,
            size,
            state: Mutex::new(RankState {
                phase: RankPhase::Joining,
                nodes: Vec::new(),
                desks: Desks::new(size),
                no_calls: None,
                no_message: None,
                gone: vec![false; size],
                failed: false,
                confirmed: false,
                follows: None,
                firsts: HashMap::new(),
                remain: Vec::new(),
                hub_end: None,
                requests: VecDeque::new(),
                abandoned: false,
            }),
            changed: Condvar::new(),
            events: Events::default(),
            ends: None,
            service: OnceLock::new(),
            turns: AtomicU64::new(0),
            #[cfg(test)]
            messages: AtomicU64::new(0),
        })
    }

    /// Notes that this thread is the service, and takes a turn at least every `turn`. It is stuck after `patience`
    /// times that.
    pub(crate) fn serve_here(&self, turn: Duration, patience: u32, silence: Duration) {
        let thread = std::thread::current().id();
        let _ = self.service.set(Served {
            thread,
            turn,
            patience,
            silence,
        });
    }

    pub(crate) fn is_served_here(&self) -> bool {
        let this = std::thread::current().id();
        self.service
            .get()
            .is_some_and(|served| served.thread == this)
    }

    /// How long rank 0 may be silent. `None`: there is no service yet.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.service.get().map(|served| served.silence)
    }

    /// Notes a turn, so that the service does not count as stuck.
    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the service has ended.
    ///
    /// # Errors
    ///
    /// If `until` has come, or if the service is stuck, for instance in the program's subscriber of `tracing`.
    pub(crate) fn wait_for_end(&self, until: Option<Instant>) -> Result<(), Wait> {
        let served = self.service.get();
        let (mut turns, mut quiet) = (self.turns.load(Ordering::Relaxed), 0);
        let mut looked = Instant::now();
        let mut state = lock(&self.state);
        while !matches!(state.phase, RankPhase::Closed | RankPhase::Failed(_)) {
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Err(Wait::Late);
            }
            let look = served.and_then(|served| looked.checked_add(served.turn));
            if look.is_some_and(|look| now >= look) {
                // This counts looks and not time: if the whole process was suspended, only one look is missed.
                looked = now;
                let before = std::mem::replace(&mut turns, self.turns.load(Ordering::Relaxed));
                quiet = if turns == before { quiet + 1 } else { 0 };
                if served.is_some_and(|served| quiet >= served.patience) {
                    return Err(Wait::Stuck);
                }
                continue;
            }
            state = match [until, look].into_iter().flatten().min() {
                None => self.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(|e| e.into_inner()).0
                }
            };
        }
        Ok(())
    }

    /// Makes the service look at its requests.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full, and then the service is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Notes that this rank's last message has its place in the common order, so this rank receives nothing more.
    pub(crate) fn left(&self) {
        self.change(|state| {
            if matches!(state.phase, RankPhase::Running) {
                state.phase = RankPhase::Left;
            }
        });
        self.events.close();
    }

    pub(crate) fn remain(&self, others: Vec<usize>) {
        if lock(&self.state).remain != others {
            self.change(|state| state.remain = others);
        }
    }

    /// Changes the state, and wakes all threads that wait for a change.
    fn change<R>(&self, change: impl FnOnce(&mut RankState) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.changed.notify_all();
        result
    }

    pub(crate) fn go(&self, nodes: Vec<usize>) {
        self.change(|state| {
            state.nodes = nodes;
            state.phase = RankPhase::Running;
        });
    }

    pub(crate) fn fail(&self, error: BootError) {
        self.change(|state| {
            if state.phase.is_joining() {
                state.phase = RankPhase::Failed(Some(error));
            }
        });
    }

    pub(crate) fn fds_arrived(&self, from: usize, round: u64, fds: Fds) {
        self.receive(|desks| {
            desks.fds(from, round, fds);
            Some(())
        });
    }

    /// Notes what has come for a round. `false`: the hub should not have sent it.
    pub(crate) fn receive_in(
        &self,
        round: u64,
        note: impl FnOnce(&mut Mail) -> Option<()>,
    ) -> bool {
        self.receive(|desks| match desks.of(round) {
            Some(desk) => note(&mut desk.mail),
            None => Some(()),
        })
    }

    /// Notes what has come for this rank's calls. `false`: the hub should not have sent it.
    pub(crate) fn receive(&self, note: impl FnOnce(&mut Desks) -> Option<()>) -> bool {
        let mut state = lock(&self.state);
        // A rank whose own call failed does not go on, and need not follow the others. Descriptors are closed here.
        let in_order = state.no_calls.is_some() || note(&mut state.desks).is_some();
        let has_news = state.desks.has_news();
        drop(state);
        // Otherwise the program would be woken for each thing that comes.
        if has_news {
            self.changed.notify_all();
        }
        in_order
    }

    pub(crate) fn message(&self, from: usize, bytes: Vec<u8>) {
        self.events.push(Event::Message { from, bytes });
    }

    /// Notes because of which rank a lost rank has failed. The first note about a rank counts.
    pub(crate) fn failed_because_of(&self, rank: usize, first: usize) {
        lock(&self.state).firsts.entry(rank).or_insert(first);
    }

    /// Notes that rank 0 has given this rank up. What follows here follows from this rank's own failure.
    pub(crate) fn is_given_up(&self) {
        (0..self.size).for_each(|rank| self.failed_because_of(rank, self.rank));
    }

    /// Notes why this rank's program fails, if it does.
    pub(crate) fn follows(&self, rank: usize, why: &str) {
        let mut state = lock(&self.state);
        self.note(&mut state, rank, why);
    }

    /// Like [`follows`](Self::follows), under the lock.
    pub(crate) fn note(&self, state: &mut RankState, rank: usize, why: &str) {
        if state.follows.is_some() {
            return;
        }
        let first = state.firsts.get(&rank).copied().unwrap_or(rank);
        state.follows = Some((first, why.to_owned()));
        if let Some(ends) = self.ends.as_ref().filter(|_| first != self.rank) {
            ends.note(self.rank, Some(first));
        }
    }

    /// Notes that the job goes on, so that a later failure has another reason than the one that was noted.
    pub(crate) fn goes_on(&self, state: &mut RankState) {
        if state.follows.take().is_some()
            && let Some(ends) = &self.ends
        {
            ends.note(self.rank, None);
        }
    }

    pub(crate) fn peer_ended(&self, rank: usize, lost: Option<&str>) {
        self.change(|state| {
            // Rank 0 may end a second time: it has left, and now its control plane ends.
            let mut again = false;
            if let (0, Some(reason)) = (rank, lost) {
                again = state.hub_end.is_none();
                state.hub_end.get_or_insert_with(|| reason.to_owned());
            }
            if std::mem::replace(&mut state.gone[rank], true) && !again {
                return;
            }
            match lost {
                Some(reason) => {
                    let reason = reason.to_owned();
                    self.events.push(Event::Lost { rank, reason });
                }
                None => self.events.push(Event::Left { rank }),
            }
        });
    }

    /// Notes that rank 0 is lost, so that nothing more can be learnt about the others.
    pub(crate) fn cut_off(&self, reason: &str) {
        self.fail(BootError::Aborted(format!("rank 0 is lost: {reason}")));
        if !matches!(lock(&self.state).phase, RankPhase::Running) {
            return;
        }
        let (said, first) = {
            let state = lock(&self.state);
            let first = state.firsts.get(&0).copied();
            (state.hub_end.clone(), first.unwrap_or(0))
        };
        let reason = said.as_deref().unwrap_or(reason);
        let others = (0..self.size).filter(|rank| *rank != self.rank);
        others.for_each(|rank| self.failed_because_of(rank, first));
        self.change(|state| state.desks.cut_off(reason));
        self.peer_ended(0, Some(reason));
        for rank in (1..self.size).filter(|rank| *rank != self.rank) {
            self.peer_ended(
                rank,
                Some(&format!(
                    "cut off: rank 0, which carries the control plane, is lost: {reason}"
                )),
            );
        }
        self.change(|state| {
            let reason = format!("rank 0, which carries it, is lost: {reason}");
            state.no_message.get_or_insert(reason);
        });
    }

    pub(crate) fn close(&self, reason: &str) {
        self.change(|state| {
            state.phase = match std::mem::replace(&mut state.phase, RankPhase::Closed) {
                RankPhase::Joining => {
                    RankPhase::Failed(Some(BootError::Aborted(reason.to_owned())))
                }
                RankPhase::Failed(error) => RankPhase::Failed(error),
                RankPhase::Running | RankPhase::Left | RankPhase::Closed => RankPhase::Closed,
            };
            state.no_calls.get_or_insert_with(|| reason.to_owned());
            state.no_message.get_or_insert_with(|| reason.to_owned());
            state.desks.clear();
            state.requests.clear();
        });
        self.events.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: &str = "its program has failed";

    fn rank(rank: usize) -> RankShared {
        RankShared {
            ends: Some(Ends::new(4).unwrap()),
            ..RankShared::new(rank, 4).unwrap()
        }
    }

    /// What the peers of a rank hear when it fails, and what the launcher reads.
    fn says(rank: &RankShared) -> (String, Option<u32>, Option<usize>) {
        let failure = lock(&rank.state).failure(rank.rank, FAILED);
        let told = rank.ends.as_ref().unwrap().told(rank.rank);
        match failure {
            Message::Fail { reason, first } => (reason, first, told),
            other => panic!("{other:?}"),
        }
    }

    fn by_itself() -> (String, Option<u32>, Option<usize>) {
        (FAILED.to_owned(), None, None)
    }

    fn since(why: &str, first: usize) -> (String, Option<u32>, Option<usize>) {
        let reason = format!("{FAILED}, since {why}");
        (reason, Some(first as u32), Some(first))
    }

    #[test]
    fn a_rank_that_follows_another_names_the_first() {
        let one = rank(1);
        assert_eq!(says(&one), by_itself());
        one.follows(2, "rank 2 is lost");
        one.follows(0, "rank 0 is lost");
        assert_eq!(says(&one), since("rank 2 is lost", 2));
        // Rank 2 itself has failed because of rank 3.
        let one = rank(1);
        one.failed_because_of(2, 3);
        one.follows(2, "rank 2 is lost");
        assert_eq!(says(&one), since("rank 2 is lost", 3));
    }

    #[test]
    fn a_rank_that_others_follow_fails_by_itself() {
        let one = rank(1);
        one.failed_because_of(2, 1);
        one.follows(2, "rank 2 is lost");
        assert_eq!(says(&one), by_itself());
        let one = rank(1);
        one.follows(1, "its own kernel panicked");
        one.follows(2, "rank 2 is lost");
        assert_eq!(says(&one), by_itself());
        let one = rank(1);
        one.is_given_up();
        one.follows(0, "rank 0 is lost");
        assert_eq!(says(&one), by_itself());
    }

    #[test]
    fn what_follows_from_rank_0_names_it() {
        let one = rank(1);
        lock(&one.state).phase = RankPhase::Running;
        one.cut_off("the connection was closed");
        one.follows(3, "rank 3 is lost");
        assert_eq!(says(&one), since("rank 3 is lost", 0));
        let one = rank(1);
        one.follows(1, "its own kernel panicked");
        assert_eq!(says(&one), by_itself());
    }

    #[test]
    fn a_job_that_goes_on_has_no_cause_of_its_end() {
        let one = rank(1);
        one.follows(2, "rank 2 dropped a token");
        one.goes_on(&mut lock(&one.state));
        assert_eq!(says(&one), by_itself());
    }
}
