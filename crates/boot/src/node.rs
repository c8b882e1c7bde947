//! One rank's part in passing descriptors within its node.
//!
//! # Model
//!
//! This is a state machine without a thread. The service gives it readiness and messages, and takes from it the
//! messages for the hub ([`Node::to_hub`]) and the descriptors that have arrived ([`Node::arrived`]).
//!
//! # Failure
//!
//! Before the job runs, a failure here ends the rendezvous with its reason. Later, a broken passage only starts a
//! clock: normally the hub says a moment later which rank was lost. If it does not, this rank withdraws from collective
//! calls, so that no rank waits for descriptors that cannot come.

use tidegate_hal::tell;

use crate::door::{Arrived, Parcel, Passage, Porch, Visit};
use crate::handshake::PATIENCE;
use crate::secret::Key;
use crate::shared::Outgoing;
use crate::wire::{DoorName, Message};
use members::Members;
use rustix::event::PollFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long the hub may take to report the rank at the other end of a broken passage as lost.
const VERDICT_PATIENCE: Duration = Duration::from_secs(2);

/// A socket of a node that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeToken {
    Porch,
    Guest(usize),
    Member(usize),
    Leader,
    /// Some of the guests and members: see [`Node::readable`].
    Crowd,
}

#[derive(Debug)]
enum NodeRole {
    /// No other rank is on this node, or that is not known yet.
    Alone,
    Leader {
        porch: Option<Porch>,
        members: Members,
    },
    /// A member that waits for the name of the leader's socket.
    Outside,
    Visiting(Visit),
    Member(Passage),
    Broken(Instant),
}

#[derive(Debug)]
pub(crate) struct Node {
    me: usize,
    key: Key,
    role: NodeRole,
    /// The lowest rank of this node.
    pub(crate) leader: usize,
    /// A letter whose descriptors are not with the leader yet, and the messages after it.
    held: Vec<Message>,
    /// Messages for the service to send.
    pub(crate) to_hub: Vec<Message>,
    /// Parcels for the service to deliver.
    pub(crate) arrived: Vec<Arrived>,
}

impl Node {
    pub(crate) fn new(me: usize, key: Key) -> Self {
        Self {
            me,
            key,
            role: NodeRole::Alone,
            leader: me,
            held: Vec::new(),
            to_hub: Vec::new(),
            arrived: Vec::new(),
        }
    }

    fn fail(&mut self, what: &str, error: &std::io::Error) {
        let reason = format!("rank {}: {what}: {error}", self.me);
        let first = None;
        self.to_hub.push(Message::Fail { reason, first });
    }

    /// Begins to connect, after all ranks have joined. `nodes` is the node of each rank.
    pub(crate) fn start(&mut self, nodes: &[usize]) {
        let here: Vec<usize> = (0..nodes.len())
            .filter(|r| nodes[*r] == nodes[self.me])
            .collect();
        self.leader = here.first().copied().unwrap_or(self.me);
        if here.len() == 1 {
            self.to_hub.push(Message::Ready);
        } else if self.leader != self.me {
            self.role = NodeRole::Outside;
        } else {
            let opened = Porch::open(self.key.clone(), here.len());
            match opened.and_then(|porch| Ok((porch, Members::new(&here[1..])?))) {
                Ok((porch, members)) => {
                    self.to_hub.push(Message::Door { name: porch.name });
                    let porch = Some(porch);
                    self.role = NodeRole::Leader { porch, members };
                }
                Err(error) => self.fail("cannot listen for the ranks of this node", &error),
            }
        }
    }

    /// Connects to the leader, at the name that the leader has sent.
    pub(crate) fn visit(&mut self, name: DoorName) {
        if !matches!(self.role, NodeRole::Outside) {
            return;
        }
        match Visit::start(self.key.clone(), name, self.me) {
            Ok(visit) => self.role = NodeRole::Visiting(visit),
            Err(error) => self.fail(
                "cannot reach the leader of this node (is TIDEGATE_NODE the same on different hosts?)",
                &error,
            ),
        }
    }

    /// Sends a letter to the hub, after its descriptors are on their way.
    pub(crate) fn write(&mut self, letter: Outgoing) {
        let Outgoing {
            to,
            round,
            bytes,
            fds,
        } = letter;
        let count = fds.len() as u8;
        let letter = Message::Letter {
            rank: to as u32,
            round,
            handles: count,
            bytes,
        };
        if fds.is_empty() {
            return self.say(letter);
        }
        let parcel = Parcel {
            from: self.me,
            to,
            round,
            count,
            fds: Some(fds),
        };
        match &mut self.role {
            NodeRole::Leader { members, .. } => {
                members.pass_on(parcel);
                self.to_hub.push(letter);
            }
            NodeRole::Member(passage) => {
                passage.push(parcel);
                self.held.push(letter);
            }
            // The receiver is on this node, and so is gone.
            NodeRole::Alone => self.to_hub.push(letter),
            // If the hub does not end the call in time, the time limit of the broken passage does.
            NodeRole::Broken(_) | NodeRole::Outside | NodeRole::Visiting(_) => {
                self.held.push(letter)
            }
        }
    }

    /// Sends a message to the hub, after those that are held.
    pub(crate) fn say(&mut self, message: Message) {
        if self.held.is_empty() {
            self.to_hub.push(message)
        } else {
            self.held.push(message)
        }
    }

    /// Whether this rank has sent and passed on everything.
    pub(crate) fn is_flushed(&self) -> bool {
        match &self.role {
            NodeRole::Leader { members, .. } => members.is_flushed(),
            NodeRole::Member(passage) => self.held.is_empty() && passage.is_empty(),
            _ => true,
        }
    }

    /// Notes that a rank is gone. Nothing is kept for it.
    pub(crate) fn forget(&mut self, rank: usize) {
        if rank == self.leader && rank != self.me {
            // Parcels that it had passed on before are still in the socket.
            self.receive_from_leader();
            self.role = NodeRole::Alone;
            // The hub has told all ranks that the leader is gone. This round fails with it, or was complete.
            self.to_hub.append(&mut self.held);
        }
        // Parcels that it had sent before count, here and for the others.
        self.receive_all(rank);
        if let NodeRole::Leader { members, .. } = &mut self.role
            && let Some(index) = members.position(rank)
        {
            members.close(index);
        }
    }

    /// Takes all parcels that `rank` has sent so far.
    pub(crate) fn receive_all(&mut self, rank: usize) {
        if rank == self.leader && rank != self.me {
            self.receive_from_leader();
        }
        if let NodeRole::Leader { members, .. } = &self.role
            && let Some(index) = members.position(rank)
        {
            self.receive_from_member(index);
        }
    }

    pub(crate) fn interest<'a>(
        &'a self,
        mut add: impl FnMut(NodeToken, BorrowedFd<'a>, PollFlags),
    ) {
        let flags = |passage: &Passage| {
            if passage.wants_write() {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            }
        };
        match &self.role {
            NodeRole::Leader { porch, members } => {
                if let Some(porch) = porch {
                    if porch.crowded_until(Instant::now()).is_none() {
                        add(NodeToken::Porch, porch.as_fd(), PollFlags::IN);
                    }
                    add(NodeToken::Crowd, porch.crowd.as_fd(), PollFlags::IN);
                }
                members.interest(|index, fd, flags| {
                    add(index.map_or(NodeToken::Crowd, NodeToken::Member), fd, flags)
                });
            }
            NodeRole::Visiting(visit) if visit.is_connected() => {
                add(NodeToken::Leader, visit.as_fd(), PollFlags::IN)
            }
            NodeRole::Member(passage) => add(NodeToken::Leader, passage.as_fd(), flags(passage)),
            NodeRole::Alone | NodeRole::Outside | NodeRole::Visiting(_) | NodeRole::Broken(_) => {}
        }
    }

    /// One of the sockets can be read. Guests must be handled from the last to the first.
    pub(crate) fn ready(&mut self, token: NodeToken, now: Instant) {
        match token {
            NodeToken::Porch => {
                if let NodeRole::Leader {
                    porch: Some(porch), ..
                } = &mut self.role
                {
                    porch.admit(now);
                }
            }
            NodeToken::Guest(index) => self.hear_guest(index),
            NodeToken::Member(index) => self.receive_from_member(index),
            NodeToken::Leader => self.receive_from_leader(),
            NodeToken::Crowd => {}
        }
    }

    fn receive_from_leader(&mut self) {
        if let NodeRole::Visiting(visit) = &mut self.role {
            match visit.advance() {
                Ok(false) => {}
                Ok(true) => {
                    if let NodeRole::Visiting(visit) =
                        std::mem::replace(&mut self.role, NodeRole::Alone)
                    {
                        self.role = NodeRole::Member(visit.arrive());
                    }
                    self.to_hub.push(Message::Ready);
                }
                Err(error) => match visit.again(&error) {
                    // The new visit goes on at the next call.
                    Some(again) => *visit = again,
                    None => {
                        self.role = NodeRole::Broken(Instant::now());
                        self.fail("cannot meet the leader of this node", &error);
                    }
                },
            }
        }
        while let NodeRole::Member(passage) = &mut self.role {
            match passage.receive() {
                Ok(None) => return,
                Ok(Some(arrived)) => self.arrived.push(arrived),
                Err(error) => {
                    tell(
                        || tracing::debug!(%error, "the passage to the leader of this node ended"),
                    );
                    self.role = NodeRole::Broken(Instant::now());
                }
            }
        }
    }

    /// Sends what can be sent.
    pub(crate) fn flush(&mut self) {
        match &mut self.role {
            NodeRole::Leader { members, .. } => {
                // A member that does not take anything any more may have sent something before.
                for rank in members.flush() {
                    self.forget(rank);
                }
            }
            NodeRole::Member(passage) => match passage.flush() {
                Ok(_) if passage.is_empty() => self.to_hub.append(&mut self.held),
                Ok(_) => {}
                Err(error) => {
                    tell(
                        || tracing::debug!(%error, "the passage to the leader of this node ended"),
                    );
                    // Data that the leader sent before is still to be read, and the end comes behind it.
                    self.receive_from_leader();
                    self.role = NodeRole::Broken(Instant::now());
                }
            },
            _ => {}
        }
    }

    /// Checks the clocks. Returns a reason if this rank can take part in no collective call any more.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<String> {
        if matches!(&self.role, NodeRole::Visiting(visit) if !visit.is_connected()) {
            self.receive_from_leader();
        }
        match &mut self.role {
            NodeRole::Leader {
                porch: Some(porch), ..
            } => {
                porch.see_off(now);
                None
            }
            NodeRole::Broken(since) if now >= *since + VERDICT_PATIENCE => {
                self.role = NodeRole::Alone;
                // Of what is held, only the collective call is lost. The others must still hear of ends and revocations.
                let held = std::mem::take(&mut self.held).into_iter();
                self.to_hub.extend(held.filter(|message| {
                    let is_call = matches!(
                        message,
                        Message::Letter { .. } | Message::Confer { .. } | Message::Exchange { .. }
                    );
                    !is_call
                }));
                let (me, leader) = (self.me, self.leader);
                Some(format!(
                    "the connection between ranks {me} and {leader} of one node broke"
                ))
            }
            _ => None,
        }
    }

    /// When [`Node::tick`] has to be called next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let soon = || Instant::now() + Duration::from_millis(10);
        match &self.role {
            NodeRole::Leader { porch, members } => {
                let guests = porch.as_ref().and_then(|porch| {
                    let oldest = porch.guests.first().map(|guest| guest.since + PATIENCE);
                    porch.crowded_until(Instant::now()).or(oldest)
                });
                if members.is_throttled() {
                    Some(soon())
                } else {
                    guests
                }
            }
            NodeRole::Visiting(visit) if !visit.is_connected() => Some(soon()),
            NodeRole::Member(passage) if passage.throttled => Some(soon()),
            NodeRole::Broken(since) => Some(*since + VERDICT_PATIENCE),
            _ => None,
        }
    }
}

mod leader;
mod members;

#[cfg(test)]
mod tests;
