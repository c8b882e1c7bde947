//! Rank 0's part in the control plane: it lets the others in, and puts all that is said into one order.
//!
//! # Model
//!
//! A star: every other rank has one connection to the hub, and keeps it for the life of the job. The hub passes
//! contributions, messages and ends on in the order in which they come; since everybody hears of them in that one
//! order, everybody comes to the same verdict about an exchange without being told it. Rank 0 itself is treated as
//! one more rank whose connection is a queue ([`Hub::own`]).
//!
//! # Failure
//!
//! A connection that ends without `Leave`, sends something that no rank sends, is silent for too long, or
//! does not read, is its rank's end: `Lost` to all others. Callers who do not prove that they belong to
//! the job are logged and sent away. Before the job runs, a lost rank ends the rendezvous for all, with the reason.

use tidegate_hal::tell;

use crate::config::unheard;
use crate::handshake::{Caller, PATIENCE};
use crate::link::Link;
use crate::secret::Key;
use crate::wire::{Message, NodeId};
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How many callers may be unproved at a time.
pub(crate) const MAX_CALLERS: usize = 64;
/// A caller younger than this is not sent away to make room: it may be a rank that is just slow.
const YOUNG: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Ranks are still to come.
    Gathering,
    /// All are there; the nodes connect within themselves.
    Opening,
    Running,
    Aborted,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HubToken {
    Listener,
    Caller(usize),
    Rank(usize),
}

pub(crate) struct Hub {
    listener: TcpListener,
    key: Key,
    size: usize,
    phase: Phase,
    callers: Vec<Caller>,
    links: Vec<Option<Link<TcpStream>>>,
    joined: Vec<Option<NodeId>>,
    nodes: Vec<u32>,
    ready: Vec<bool>,
    gone: Vec<bool>,
    /// How many exchanges each rank has contributed to.
    contributed: Vec<u64>,
    /// What rank 0 hears of all this.
    pub(crate) own: VecDeque<Message>,
    /// Ranks whose end was found while something was sent to them.
    doomed: Vec<(usize, String)>,
    /// Accepting failed (too many open files, say): not before this moment again.
    accept_after: Option<Instant>,
}

impl Hub {
    pub(crate) fn new(listener: TcpListener, key: Key, size: usize) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            key,
            size,
            phase: Phase::Gathering,
            callers: Vec::new(),
            links: (0..size).map(|_| None).collect(),
            joined: vec![None; size],
            nodes: Vec::new(),
            ready: vec![false; size],
            gone: vec![false; size],
            contributed: vec![0; size],
            own: VecDeque::new(),
            doomed: Vec::new(),
            accept_after: None,
        })
    }

    /// The ranks that the rendezvous still waits for.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let here = |rank: &usize| match self.phase {
            Phase::Gathering => self.joined[*rank].is_some(),
            _ => self.ready[*rank],
        };
        (0..self.size).filter(|rank| !here(rank)).collect()
    }

    pub(crate) fn is_gathering(&self) -> bool {
        self.phase == Phase::Gathering
    }

    /// Whether all others have ended and their connections are closed.
    pub(crate) fn is_deserted(&self) -> bool {
        self.gone.iter().skip(1).all(|gone| *gone) && self.links.iter().all(Option::is_none)
    }

    /// Whether all that was said is out.
    pub(crate) fn is_flushed(&self) -> bool {
        self.links.iter().flatten().all(|link| !link.wants_write())
    }

    fn send(&mut self, to: usize, message: &Message) {
        self.send_encoded(to, &message.encode(), message);
    }

    fn send_encoded(&mut self, to: usize, body: &[u8], message: &Message) {
        if to == 0 {
            self.own.push_back(message.clone());
        } else if let Some(Some(link)) = self.links.get_mut(to)
            && let Err(error) = link.push(body)
        {
            self.doomed.push((to, error.to_string()));
        }
    }

    fn broadcast(&mut self, except: usize, message: &Message) {
        let body = message.encode();
        for rank in 0..self.size {
            if rank != except && !self.gone[rank] {
                self.send_encoded(rank, &body, message);
            }
        }
    }

    /// Ends the rendezvous for everybody.
    pub(crate) fn abort(&mut self, reason: &str) {
        self.phase = Phase::Aborted;
        let reason = reason.to_owned();
        self.broadcast(usize::MAX, &Message::Abort { reason });
    }

    /// Notes that `rank` has ended without having said so.
    fn lose(&mut self, rank: usize, reason: &str) {
        let link = self.links[rank].take();
        if std::mem::replace(&mut self.gone[rank], true) {
            return;
        }
        let message = Message::Lost {
            rank: rank as u32,
            reason: reason.to_owned(),
        };
        // If it can still hear, it should know that it was given up.
        if let Some(mut link) = link {
            let _ = link.push(&message.encode()).and_then(|()| link.flush());
        }
        match self.phase {
            Phase::Running => {
                self.broadcast(rank, &message);
                tell(|| tracing::warn!(rank, reason, "rank lost"));
            }
            Phase::Aborted => {}
            Phase::Gathering | Phase::Opening => {
                self.abort(&format!(
                    "rank {rank} ended during the rendezvous: {reason}"
                ));
            }
        }
    }

    /// Something that `from` says.
    pub(crate) fn receive(&mut self, from: usize, message: Message) {
        if self.gone[from] {
            return;
        }
        let genuine = |rank: u32| rank as usize == from;
        match (self.phase, &message) {
            (_, Message::Beat) => {}
            (Phase::Gathering, Message::Join { node }) if self.joined[from].is_none() => {
                self.joined[from] = Some(*node);
                if self.joined.iter().all(Option::is_some) {
                    self.phase = Phase::Opening;
                    self.nodes = number_nodes(&self.joined);
                    let nodes = self.nodes.clone();
                    self.broadcast(usize::MAX, &Message::Start { nodes });
                }
            }
            (Phase::Opening, Message::Door { name }) => {
                for rank in 0..self.size {
                    if rank != from && self.nodes[rank] == self.nodes[from] {
                        self.send(rank, &Message::Door { name: *name });
                    }
                }
            }
            (Phase::Opening, Message::Ready) => {
                self.ready[from] = true;
                if self.ready.iter().all(|ready| *ready) {
                    self.phase = Phase::Running;
                    self.broadcast(usize::MAX, &Message::Go);
                }
            }
            (Phase::Running, Message::Contribution { rank, round, .. })
                if genuine(*rank)
                    && *round == self.contributed[from]
                    && self.contributed.iter().all(|count| count >= round) =>
            {
                self.contributed[from] += 1;
                let round = *round;
                self.send(from, &Message::Accepted { round });
                self.broadcast(from, &message);
            }
            (Phase::Running, Message::Withdrawn { rank, .. }) if genuine(*rank) => {
                self.broadcast(from, &message)
            }
            (
                Phase::Running,
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
                        let body = message.encode();
                        for rank in to.iter().map(|rank| *rank as usize) {
                            if self.gone.get(rank) == Some(&false) {
                                self.send_encoded(rank, &body, &message);
                            }
                        }
                    }
                }
            }
            (Phase::Running, Message::Leave) => {
                self.send(from, &Message::Bye);
                self.gone[from] = true;
                self.broadcast(from, &Message::Left { rank: from as u32 });
            }
            (_, Message::Fail { reason }) => {
                self.send(from, &Message::Bye);
                match self.phase {
                    Phase::Running => {
                        self.gone[from] = true;
                        let (rank, reason) = (from as u32, reason.clone());
                        self.broadcast(from, &Message::Lost { rank, reason });
                    }
                    _ => self.abort(reason),
                }
            }
            (Phase::Aborted, _) => {}
            (_, _) => self.lose(from, "it sent a message that is not allowed at this point"),
        }
    }

    pub(crate) fn interest<'a>(&'a self, mut add: impl FnMut(HubToken, BorrowedFd<'a>, PollFlags)) {
        let now = Instant::now();
        if self.crowded_until(now).is_none() && self.accept_after.is_none_or(|after| now >= after) {
            add(HubToken::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        for (index, caller) in self.callers.iter().enumerate() {
            add(
                HubToken::Caller(index),
                caller.stream().as_fd(),
                PollFlags::IN,
            );
        }
        for (rank, link) in self.links.iter().enumerate() {
            if let Some(link) = link {
                let write = if link.wants_write() {
                    PollFlags::OUT
                } else {
                    PollFlags::empty()
                };
                add(
                    HubToken::Rank(rank),
                    link.stream().as_fd(),
                    PollFlags::IN | write,
                );
            }
        }
    }

    /// One of the sockets can be read. Callers must be handled from the last to the first.
    pub(crate) fn ready(&mut self, token: HubToken, now: Instant) {
        match token {
            HubToken::Listener => self.accept(now),
            HubToken::Caller(index) => self.hear_caller(index),
            HubToken::Rank(rank) => self.hear_rank(rank),
        }
    }

    fn accept(&mut self, now: Instant) {
        self.accept_after = None;
        loop {
            if self.callers.len() >= MAX_CALLERS {
                // The oldest has had its time; a rank of the job needs milliseconds.
                match self.callers.iter().position(|c| now >= c.since + YOUNG) {
                    Some(index) => {
                        let caller = self.callers.remove(index);
                        tell(
                            || tracing::warn!(from = %caller.from, "sent a caller away to make room for others"),
                        );
                    }
                    None => return,
                }
            }
            match self.listener.accept() {
                Ok((stream, from)) => match Caller::greet(stream, from, now) {
                    Ok(caller) => self.callers.push(caller),
                    Err(reason) => tell(|| tracing::warn!(%from, %reason, "refused a caller")),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    tell(|| tracing::warn!(%error, "cannot accept callers for a moment"));
                    self.accept_after = Some(now + Duration::from_millis(200));
                    return;
                }
            }
        }
    }

    fn hear_caller(&mut self, index: usize) {
        let from = self.callers[index].from;
        let refusal = match self.callers[index].advance() {
            Ok(false) => return,
            Ok(true) => match self.callers.remove(index).check(&self.key, self.size) {
                Ok(proved) => {
                    let rank = proved.session.rank;
                    let free = self.phase == Phase::Gathering
                        && (1..self.size).contains(&rank)
                        && self.links[rank].is_none()
                        && !self.gone[rank];
                    match free {
                        true => match proved.accept() {
                            Ok((stream, session)) => {
                                let limit = (2 * self.size + 64) << 20;
                                let link =
                                    Link::new(stream, session.to_rank, session.to_hub, limit);
                                self.links[rank] = Some(link);
                                return;
                            }
                            Err(refusal) => refusal,
                        },
                        false => proved.refuse(),
                    }
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => {
                self.callers.remove(index);
                refusal
            }
        };
        tell(|| tracing::warn!(%from, reason = %refusal, "refused a caller"));
    }

    fn hear_rank(&mut self, rank: usize) {
        let Some(link) = &mut self.links[rank] else {
            return;
        };
        let end = link.fill().err();
        loop {
            let Some(link) = &mut self.links[rank] else {
                return;
            };
            match link.next() {
                Ok(Some(message)) => self.receive(rank, message),
                Ok(None) => break,
                Err(error) => {
                    self.lose(rank, &error.to_string());
                    return;
                }
            }
        }
        if let Some(error) = end {
            self.ended(rank, &error.to_string());
        }
    }

    fn ended(&mut self, rank: usize, reason: &str) {
        // Before `Join` nobody counts on it; it may try again.
        if self.phase == Phase::Gathering && self.joined[rank].is_none() {
            self.links[rank] = None;
        } else {
            self.lose(rank, reason);
        }
    }

    /// Sends what can be sent.
    pub(crate) fn flush(&mut self) {
        for rank in 1..self.size {
            if let Some(link) = &mut self.links[rank]
                && link.wants_write()
                && let Err(error) = link.flush()
            {
                self.doomed.push((rank, error.to_string()));
            }
        }
        while let Some((rank, reason)) = self.doomed.pop() {
            // What it said before its end counts.
            self.hear_rank(rank);
            self.ended(rank, &reason);
        }
    }

    /// Once every interval: beats go out, and who has been silent for `limit` intervals is given up.
    pub(crate) fn beat(&mut self, interval: Duration, limit: u32) {
        let body = Message::Beat.encode();
        for rank in 1..self.size {
            let Some(link) = &mut self.links[rank] else {
                continue;
            };
            link.quiet = if std::mem::take(&mut link.heard) {
                0
            } else {
                link.quiet + 1
            };
            if link.quiet >= limit {
                let silence = interval.saturating_mul(link.quiet);
                self.ended(rank, &unheard(silence));
            } else if !self.gone[rank]
                && let Err(error) = link.push(&body)
            {
                self.doomed.push((rank, error.to_string()));
            }
        }
    }

    /// Sends slow callers away.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.callers.retain(|caller| {
            let patient = now < caller.since + PATIENCE;
            if !patient {
                tell(|| tracing::warn!(from = %caller.from, "refused a caller: it took too long to prove itself"));
            }
            patient
        });
    }

    /// When [`Hub::tick`] is to be called next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let oldest = self.callers.iter().map(|c| c.since).min();
        let crowded = self.crowded_until(Instant::now());
        let callers = crowded.or(oldest.map(|since| since + PATIENCE));
        [callers, self.accept_after].into_iter().flatten().min()
    }

    /// Until when nobody can be heard besides: there is no room, and nobody who could be sent away.
    fn crowded_until(&self, now: Instant) -> Option<Instant> {
        let oldest = self.callers.iter().map(|c| c.since).min();
        let until = oldest.filter(|_| self.callers.len() >= MAX_CALLERS)? + YOUNG;
        (now < until).then_some(until)
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
