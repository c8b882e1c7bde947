//! What the program's threads and the service of one rank have in common.

use crate::error::BootError;
use crate::events::Events;
use crate::rounds::Rounds;
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

/// A contribution without its descriptors, which take another way.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) bytes: Vec<u8>,
    pub(crate) handles: u8,
}

/// What the program asks of the service.
#[derive(Debug)]
pub(crate) enum ServiceRequest {
    Contribute {
        round: u64,
        label: String,
        bytes: Vec<u8>,
        fds: Vec<OwnedFd>,
    },
    Say(Message),
    /// `Leave` or `Fail`; the second may follow the first.
    End(Message),
    /// This rank has left, and will not say that it has failed.
    Over,
}

#[derive(Debug)]
pub(crate) enum RankPhase {
    Joining,
    Running,
    /// The others are told, or will be, that this rank has ended; its service may still run.
    Left,
    /// The reason, until somebody takes it.
    Failed(Option<BootError>),
    Closed,
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
    /// The lowest rank of this node.
    pub(crate) leader: usize,
    pub(crate) rounds: Rounds<Blob>,
    /// Descriptors that came for a round, or why they did not.
    pub(crate) fds: HashMap<(usize, u64), Result<Vec<OwnedFd>, String>>,
    pub(crate) next_round: u64,
    /// What this rank gives to the round it is in, until the hub has accepted it. Only then does it count here
    /// too: so an exchange that succeeds for one rank succeeds for all that live.
    pub(crate) own: Option<(u64, String, Blob)>,
    /// Why no exchange is possible any more.
    pub(crate) no_exchange: Option<String>,
    /// Why nothing can be said any more.
    pub(crate) no_message: Option<String>,
    pub(crate) gone: Vec<bool>,
    /// Whether this rank has said that it ends in bad order.
    pub(crate) failed: bool,
    /// On rank 0, when it has left: the ranks that it carries the control plane for.
    pub(crate) remain: Vec<usize>,
    /// Why rank 0 was lost, if that was said.
    hub_end: Option<String>,
    pub(crate) requests: VecDeque<ServiceRequest>,
    /// The program does not wait for the service any longer.
    pub(crate) abandoned: bool,
}

/// Why a wait for the end of a service is over before it.
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
    /// Wakes the service.
    pub(crate) wake: OwnedFd,
    service: OnceLock<Served>,
    /// How often the service has done something, or has found that there is nothing to do.
    turns: AtomicU64,
}

/// The service of a rank.
struct Served {
    thread: ThreadId,
    /// The service takes a turn at least this often.
    turn: Duration,
    /// After so many of these without a turn, the service is stuck.
    patience: u32,
    /// How long rank 0 may say nothing.
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
                leader: rank,
                rounds: Rounds::new(size),
                fds: HashMap::new(),
                next_round: 0,
                own: None,
                no_exchange: None,
                no_message: None,
                gone: vec![false; size],
                failed: false,
                remain: Vec::new(),
                hub_end: None,
                requests: VecDeque::new(),
                abandoned: false,
            }),
            changed: Condvar::new(),
            events: Events::default(),
            service: OnceLock::new(),
            turns: AtomicU64::new(0),
        })
    }

    /// This thread is the service, and takes a turn at least every `turn`. After `patience` times that it is stuck.
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

    /// How long rank 0 may say nothing. `None`: there is no service yet.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.service.get().map(|served| served.silence)
    }

    /// The service is not stuck.
    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the service has ended.
    ///
    /// # Errors
    ///
    /// It is `until`, or the service is stuck: for instance, the program's subscriber of `tracing` keeps it.
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
                // Counted in looks and not in time: where the whole process was suspended, only one look is missed.
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

    /// Has the service look at its requests.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full: then the service is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// This rank's last message has its place in the order of all: it hears nothing more.
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

    /// Changes the state and lets everybody who waits look at it.
    fn change<R>(&self, change: impl FnOnce(&mut RankState) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.changed.notify_all();
        result
    }

    pub(crate) fn go(&self, nodes: Vec<usize>, leader: usize) {
        self.change(|state| {
            state.nodes = nodes;
            state.leader = leader;
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

    pub(crate) fn fds_arrived(&self, rank: usize, round: u64, fds: Result<Vec<OwnedFd>, String>) {
        self.change(|state| {
            // Of a round that is over, or can never be: let the kernel close them.
            if round >= state.next_round.saturating_sub(1) && state.no_exchange.is_none() {
                state.fds.insert((rank, round), fds);
            }
        });
    }

    pub(crate) fn contributed(&self, rank: usize, round: u64, label: &str, blob: Blob) -> bool {
        let mut state = lock(&self.state);
        if state.no_exchange.is_some() {
            // A rank whose own exchange failed does not move on, and need not follow those of the others.
            return true;
        }
        let label = Arc::from(label);
        let in_order = state.rounds.contribute(rank, round, label, blob).is_ok();
        // Not for each of them: the program would be woken as often as there are ranks.
        if state.rounds.is_decided(round) {
            self.changed.notify_all();
        }
        in_order
    }

    /// The hub has put this rank's contribution into the order of all.
    pub(crate) fn accepted(&self, accepted: u64) -> bool {
        self.change(|state| match state.own.take() {
            _ if state.no_exchange.is_some() => true,
            Some((round, label, blob)) if round == accepted => state
                .rounds
                .contribute(self.rank, round, Arc::from(label), blob)
                .is_ok(),
            _ => false,
        })
    }

    pub(crate) fn withdrawn(&self, rank: usize, reason: String) {
        self.change(|state| {
            if rank < self.size {
                state.rounds.end(rank, reason);
            }
        });
    }

    /// This rank takes part in no exchange any more.
    pub(crate) fn withdraw(&self, reason: &str) {
        self.change(|state| {
            state.no_exchange.get_or_insert_with(|| reason.to_owned());
        });
    }

    pub(crate) fn message(&self, from: usize, bytes: Vec<u8>) {
        self.events.push(Event::Message { from, bytes });
    }

    pub(crate) fn peer_ended(&self, rank: usize, lost: Option<&str>) {
        self.change(|state| {
            // Rank 0 may end for the second time: it has left, and carries the others no longer.
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
                    state.rounds.end(rank, reason);
                    let reason = reason.to_owned();
                    self.events.push(Event::Lost { rank, reason });
                }
                None => {
                    state.rounds.end(rank, "it has left the job");
                    self.events.push(Event::Left { rank });
                }
            }
        });
    }

    /// Rank 0 is lost, and with it every way to learn what becomes of the others.
    pub(crate) fn cut_off(&self, reason: &str) {
        self.fail(BootError::Aborted(format!("rank 0 is lost: {reason}")));
        if !matches!(lock(&self.state).phase, RankPhase::Running) {
            return;
        }
        let said = lock(&self.state).hub_end.clone();
        let reason = said.as_deref().unwrap_or(reason);
        // What the hub has not accepted, no other rank has seen, and this one must not count it either.
        self.change(|state| state.rounds.end_because_of(self.rank, 0, reason));
        self.peer_ended(0, Some(reason));
        for rank in (1..self.size).filter(|rank| *rank != self.rank) {
            self.change(|state| state.rounds.end_because_of(rank, 0, reason));
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
            state.no_exchange.get_or_insert_with(|| reason.to_owned());
            state.no_message.get_or_insert_with(|| reason.to_owned());
            state.fds.clear();
            state.requests.clear();
        });
        self.events.close();
    }
}
