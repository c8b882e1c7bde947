//! Rank 0's part of the control plane: it accepts the other ranks, and puts all messages into one order.
//!
//! # Model
//!
//! The ranks form a star: every other rank has one connection to the hub, as long as the job runs. The hub passes on
//! letters, messages and ends in the order in which they come. It alone decides how a collective call ends
//! ([`Rounds`](crate::rounds::Rounds)), and tells all ranks of the team ([`Teams`]). Letters wait for the next message
//! to their receiver, usually the decision, so that it wakes once for them. Rank 0 itself is treated like any other
//! rank, except that its connection is a queue ([`Hub::own`]).
//!
//! # Turns
//!
//! One message may be for thousands of ranks, and thousands of messages may wait to be read. So the hub handles a
//! bounded number at a time ([`Hub::is_loaded`]). Between these turns its service sends what is queued, and heartbeats.
//! A rank that has sent more than a turn can hold is in the *backlog*, and is not read from until its messages are
//! handled.
//!
//! # Ends
//!
//! If a rank leaves, the hub acknowledges it at once. The other ranks are told when its connection closes, or after
//! [`HOLD`]. Usually the rank's process ends within that time. If it ends with an error, the rank says so, and the
//! others are told that it failed. (`main` drops its world before it returns an error.) If the process takes longer to
//! end, the others are told that the rank has left. The hub does not wait until the connection closes. A program may go
//! on for hours, and ranks that wait for one that has left should learn that soon.
//!
//! # Failure
//!
//! A rank is [`Lost`](Message::Lost) to all others if its connection ends without `Leave`, sends a message that no rank
//! sends, is silent for too long, or does not read. Callers that do not prove that they belong to the job are logged
//! and refused. If a rank is lost before the job runs, the rendezvous ends for all ranks, with the reason.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_hal::ids::TeamId;
use tidegate_hal::tell;

use crate::handshake::{Caller, PATIENCE};
use crate::link::{Body, Link};
use crate::ready::Crowd;
use crate::secret::{Key, random};
use crate::teams::Teams;
use crate::wire::{DoorName, Message, NodeId};
use std::collections::{HashMap, VecDeque};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How many callers may be unproved at a time.
pub(crate) const MAX_CALLERS: usize = 64;
/// How many callers may wait until they are accepted, if the kernel allows as many.
const MOST_WAITING: i32 = 4096;
/// For how long the others are not told that a rank has left, since it may turn out that it has failed.
pub(crate) const HOLD: Duration = Duration::from_millis(300);
/// How many frames, and how many bytes of them, are queued before they are sent and heartbeats go out.
const TURN: (usize, usize) = (1024, 16 << 20);
/// How many descriptors rank 0 may need besides those of the other ranks' connections.
const OWN_DESCRIPTORS: u64 = 512;
/// A younger caller is not refused to make room, since it may be a slow rank.
const YOUNG: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HubPhase {
    /// Some ranks are missing.
    Gathering,
    /// All ranks are there, and open their doors.
    Opening,
    Running,
    Aborted,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HubToken {
    Listener,
    Caller(usize),
    Rank(usize),
    /// Some of the ranks: see [`Hub::readable`].
    Ranks,
}

pub(crate) struct Hub {
    listener: TcpListener,
    key: Key,
    size: usize,
    /// The number of this job, among the jobs for which the environment was used one after the other.
    generation: u64,
    phase: HubPhase,
    /// Random bytes for the names of the ranks' doors.
    seed: DoorName,
    callers: Vec<Caller>,
    links: Vec<Option<Link<TcpStream>>>,
    /// The connections of all ranks, by rank.
    crowd: Crowd,
    /// The ranks to which something is queued, or whose connections are not needed any more.
    unsent: Vec<usize>,
    joined: Vec<Option<NodeId>>,
    nodes: Vec<u32>,
    ready: Vec<bool>,
    gone: Vec<bool>,
    /// Ranks that have left, and when the others are told.
    leaving: Vec<Option<Instant>>,
    teams: Teams,
    gathered: HashMap<TeamId, Gathered>,
    /// Ranks that have left, of which the others have still to be told.
    departed: Vec<u32>,
    /// The messages for rank 0.
    pub(crate) own: VecDeque<Message>,
    /// Frames and bytes queued since the last flush.
    load: (usize, usize),
    /// The load at each flush.
    #[cfg(test)]
    flushed: Vec<(usize, usize)>,
    /// Ranks that have sent more than was handled, in the order of their turns.
    backlog: VecDeque<usize>,
    is_in_backlog: Vec<bool>,
    /// Accepting failed (because of too many open files, for example). It is tried again at this time.
    accept_after: Option<Instant>,
    /// The last error of accepting, if it failed.
    pub(crate) not_accepted: Option<std::io::Error>,
}

impl Hub {
    pub(crate) fn new(
        listener: TcpListener,
        key: Key,
        size: usize,
        generation: u64,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        make_room(size);
        // All ranks may call at once. A kernel that has no room for a caller lets it wait for a second or longer.
        rustix::net::listen(&listener, MOST_WAITING)?;
        Ok(Self {
            listener,
            key,
            size,
            generation,
            phase: HubPhase::Gathering,
            seed: random()?,
            callers: Vec::new(),
            links: (0..size).map(|_| None).collect(),
            crowd: Crowd::new()?,
            unsent: Vec::new(),
            joined: vec![None; size],
            nodes: Vec::new(),
            ready: vec![false; size],
            gone: vec![false; size],
            leaving: vec![None; size],
            teams: Teams::new(size),
            gathered: HashMap::new(),
            departed: Vec::new(),
            own: VecDeque::new(),
            load: (0, 0),
            #[cfg(test)]
            flushed: Vec::new(),
            backlog: VecDeque::new(),
            is_in_backlog: vec![false; size],
            accept_after: None,
            not_accepted: None,
        })
    }

    /// The ranks that the rendezvous still waits for.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let here = |rank: &usize| match self.phase {
            HubPhase::Gathering => self.joined[*rank].is_some(),
            _ => self.ready[*rank],
        };
        (0..self.size).filter(|rank| !here(rank)).collect()
    }

    pub(crate) fn is_gathering(&self) -> bool {
        self.phase == HubPhase::Gathering
    }

    /// The other ranks that are in the job.
    pub(crate) fn others(&self) -> Vec<usize> {
        (1..self.size).filter(|rank| !self.gone[*rank]).collect()
    }

    fn is_here(&self, rank: usize) -> bool {
        !self.gone[rank] && self.leaving[rank].is_none()
    }

    /// Whether enough is queued for one turn.
    pub(crate) fn is_loaded(&self) -> bool {
        self.load.0 >= TURN.0 || self.load.1 >= TURN.1
    }

    /// Whether some messages have been read and not handled.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether all others have ended and their connections are closed.
    pub(crate) fn is_deserted(&self) -> bool {
        self.gone.iter().skip(1).all(|gone| *gone) && self.links.iter().all(Option::is_none)
    }

    /// Whether everything queued has been sent.
    pub(crate) fn is_flushed(&self) -> bool {
        let links = self
            .unsent
            .iter()
            .filter_map(|rank| self.links[*rank].as_ref());
        links.into_iter().all(|link| !link.wants_write())
    }

    /// Ends all connections, after everything was sent.
    pub(crate) fn hang_up(&mut self) {
        if self.phase == HubPhase::Aborted || !self.is_flushed() {
            return;
        }
        self.phase = HubPhase::Aborted;
        for link in self.links.iter().flatten() {
            // This shuts down and does not close: if data that the other side sent is unread, closing would discard our
            // last messages.
            let _ = link.stream().shutdown(Shutdown::Write);
        }
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        self.links.iter().all(Option::is_none)
    }

    fn broadcast(&mut self, except: usize, message: &Message) {
        let body = Body::of(message);
        for rank in 0..self.size {
            if rank != except && self.is_here(rank) {
                self.send_body(rank, &body, message);
            }
        }
    }

    /// Ends the rendezvous for all ranks.
    pub(crate) fn abort(&mut self, reason: &str) {
        self.phase = HubPhase::Aborted;
        let reason = reason.to_owned();
        self.broadcast(usize::MAX, &Message::Abort { reason });
    }

    /// Notes that the others are to be told that a rank has left, if it has.
    pub(crate) fn depart(&mut self, rank: usize) {
        if self.leaving[rank].take().is_some() {
            self.gone[rank] = true;
            // The next flush closes its connection.
            self.unsent.push(rank);
            self.departed.push(rank as u32);
        }
    }

    /// Tells the others which ranks have left. One message tells of all that have left in one turn, since at the end of
    /// a job all leave.
    fn tell_departed(&mut self) {
        let ranks = std::mem::take(&mut self.departed);
        if ranks.is_empty() {
            return;
        }
        let gone = ranks.clone();
        self.broadcast(usize::MAX, &Message::Left { ranks });
        for rank in gone {
            self.ends_calls(rank as usize, "it has left the job");
        }
    }

    /// Notes that `rank` has ended without saying so.
    fn lose(&mut self, rank: usize, reason: &str) {
        let link = self.unlink(rank);
        self.depart(rank);
        if std::mem::replace(&mut self.gone[rank], true) {
            return;
        }
        let message = Message::Lost {
            rank: rank as u32,
            reason: reason.to_owned(),
            first: None,
        };
        // If it can still read, it should learn that it was given up.
        if let Some(mut link) = link {
            let _ = link.push(&Body::of(&message)).and_then(|()| link.flush());
        }
        match self.phase {
            HubPhase::Running => {
                self.broadcast(rank, &message);
                self.ends_calls(rank, reason);
                tell(|| tracing::warn!(rank, reason, "rank lost"));
            }
            HubPhase::Aborted => {}
            HubPhase::Gathering | HubPhase::Opening => {
                self.abort(&format!(
                    "rank {rank} ended during the rendezvous: {reason}"
                ));
            }
        }
    }

    /// Handles a message of rank `from`.
    pub(crate) fn receive(&mut self, from: usize, message: Message) {
        // Rank 0 may have left, and then fail, so that it serves no other rank any more.
        let fails = from == 0 && matches!(message, Message::Fail { .. });
        if self.gone[from] && !fails {
            return;
        }
        let genuine = |rank: u32| rank as usize == from;
        match (self.phase, &message) {
            (_, Message::Beat) => {}
            (HubPhase::Gathering, Message::Join { node }) if self.joined[from].is_none() => {
                self.joined[from] = Some(*node);
                if self.joined.iter().all(Option::is_some) {
                    self.phase = HubPhase::Opening;
                    self.nodes = number_nodes(&self.joined);
                    let (nodes, seed) = (self.nodes.clone(), self.seed);
                    self.broadcast(usize::MAX, &Message::Start { nodes, seed });
                }
            }
            (HubPhase::Opening, Message::Ready) => {
                self.ready[from] = true;
                if self.ready.iter().all(|ready| *ready) {
                    self.phase = HubPhase::Running;
                    self.broadcast(usize::MAX, &Message::Go);
                }
            }
            (
                HubPhase::Running,
                Message::Exchange { .. }
                | Message::Letter { .. }
                | Message::Confer { .. }
                | Message::Found { .. }
                | Message::Withdrawn { .. },
            ) if self.is_here(from) => {
                if let Err(error) = self.hear_call(from, message) {
                    self.lose(from, &error.to_string());
                }
            }
            (
                HubPhase::Running,
                Message::Notify {
                    from: rank,
                    to,
                    bytes,
                },
            ) if genuine(*rank) => {
                let message = Message::Notify {
                    from: *rank,
                    to: None,
                    bytes: bytes.clone(),
                };
                match to {
                    None => self.broadcast(from, &message),
                    Some(to) => {
                        let body = Body::of(&message);
                        for rank in to.iter().map(|rank| *rank as usize) {
                            if rank < self.size && self.is_here(rank) {
                                self.send_body(rank, &body, &message);
                            }
                        }
                    }
                }
            }
            (HubPhase::Running, Message::Leave) if self.is_here(from) => {
                self.send(from, &Message::Bye);
                self.leaving[from] = Some(Instant::now() + HOLD);
            }
            (_, Message::Fail { reason, first }) => {
                self.send(from, &Message::Bye);
                match self.phase {
                    HubPhase::Running => {
                        self.gone[from] = true;
                        self.leaving[from] = None;
                        let lost = Message::Lost {
                            rank: from as u32,
                            reason: reason.clone(),
                            first: *first,
                        };
                        self.broadcast(from, &lost);
                        self.ends_calls(from, reason);
                    }
                    _ => self.abort(reason),
                }
            }
            (HubPhase::Aborted, _) => {}
            (_, _) => self.lose(from, "it sent a message that is not allowed at this point"),
        }
    }

    /// Refuses slow callers, and tells the others which ranks have left.
    pub(crate) fn tick(&mut self, now: Instant) {
        for rank in 0..self.size {
            if self.leaving[rank].is_some_and(|until| now >= until) {
                self.depart(rank);
            }
        }
        self.tell_departed();
        self.callers.retain(|caller| {
            let patient = now < caller.since + PATIENCE;
            if !patient {
                tell(|| tracing::warn!(from = %caller.from, "refused a caller: it took too long to prove itself"));
            }
            patient
        });
    }

    /// When [`Hub::tick`] has to be called next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let oldest = self.callers.iter().map(|c| c.since).min();
        let crowded = self.crowded_until(Instant::now());
        let callers = crowded.or(oldest.map(|since| since + PATIENCE));
        let leaving = self.leaving.iter().flatten().min().copied();
        [callers, self.accept_after, leaving]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Rank 0 needs a descriptor for each other rank. If it may open fewer and the system allows more (the limit is
/// *soft*), it takes more.
fn make_room(size: usize) {
    let limit = getrlimit(Resource::Nofile);
    let needed = size as u64 + OWN_DESCRIPTORS;
    let allowed = limit.maximum.map_or(needed, |most| most.min(needed));
    if limit.current.is_some_and(|current| current < allowed) {
        let current = Some(allowed);
        // If it fails, ranks that find no room are told so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Numbers nodes in the order of their lowest ranks.
fn number_nodes(joined: &[Option<NodeId>]) -> Vec<u32> {
    let mut known: Vec<&NodeId> = Vec::new();
    let mut numbers = Vec::with_capacity(joined.len());
    for id in joined.iter().flatten() {
        let number = known
            .iter()
            .position(|other| *other == id)
            .unwrap_or_else(|| {
                known.push(id);
                known.len() - 1
            });
        numbers.push(number as u32);
    }
    numbers
}

mod callers;
mod calls;
mod gathered;
mod links;

use gathered::Gathered;
#[cfg(test)]
pub(crate) mod tests;
