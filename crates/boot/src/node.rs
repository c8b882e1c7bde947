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
//! clock: normally the hub says a moment later which rank was lost. If it does not, this rank withdraws from exchanges,
//! so that no rank waits for descriptors that cannot come.

use tidegate_hal::limits::no_descriptors;
use tidegate_hal::tell;

use crate::door::{Arrived, Parcel, Passage, Porch, Visit};
use crate::handshake::PATIENCE;
use crate::secret::Key;
use crate::wire::{DoorName, Message};
use rustix::event::PollFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
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
}

#[derive(Debug)]
struct Member {
    rank: usize,
    /// `None`: the member has not come yet, or has gone.
    passage: Option<Passage>,
}

#[derive(Debug)]
enum NodeRole {
    /// No other rank is on this node, or that is not known yet.
    Alone,
    Leader {
        porch: Option<Porch>,
        members: Vec<Member>,
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
    /// A contribution whose descriptors are not with the leader yet, and the messages after it.
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
            match Porch::open(self.key.clone(), here.len()) {
                Ok(porch) => {
                    self.to_hub.push(Message::Door { name: porch.name });
                    let members = here[1..].iter().map(|rank| Member {
                        rank: *rank,
                        passage: None,
                    });
                    self.role = NodeRole::Leader {
                        members: members.collect(),
                        porch: Some(porch),
                    };
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

    /// Gives `fds` to the node. The contribution goes to the hub as soon as it may.
    pub(crate) fn contribute(&mut self, round: u64, fds: Vec<OwnedFd>, contribution: Message) {
        if fds.is_empty() {
            // An exchange may be complete here before the hub has this rank's contribution. The contribution to the
            // next one must not overtake it.
            self.say(contribution);
            return;
        }
        let parcel = Parcel {
            rank: self.me,
            round,
            count: fds.len() as u8,
            fds: Some(Arc::new(fds)),
        };
        match &mut self.role {
            NodeRole::Leader { members, .. } => {
                for passage in members.iter_mut().filter_map(|m| m.passage.as_mut()) {
                    passage.push(parcel.clone());
                }
                self.to_hub.push(contribution);
            }
            NodeRole::Member(passage) => {
                passage.push(parcel);
                self.held.push(contribution);
            }
            // There is no other rank here that needs the descriptors.
            NodeRole::Alone => self.to_hub.push(contribution),
            // If the hub does not end the exchange in time, the time limit of the broken passage does.
            NodeRole::Broken(_) | NodeRole::Outside | NodeRole::Visiting(_) => {
                self.held.push(contribution)
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
            NodeRole::Leader { members, .. } => members
                .iter()
                .filter_map(|m| m.passage.as_ref())
                .all(Passage::is_empty),
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
        if let NodeRole::Leader { members, .. } = &mut self.role {
            for member in members.iter_mut().filter(|m| m.rank == rank) {
                member.passage = None;
            }
        }
    }

    /// Takes all parcels that `rank` has sent so far.
    pub(crate) fn receive_all(&mut self, rank: usize) {
        if rank == self.leader && rank != self.me {
            self.receive_from_leader();
        }
        if let NodeRole::Leader { members, .. } = &self.role
            && let Some(index) = members.iter().position(|m| m.rank == rank)
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
                    for (index, guest) in porch.guests.iter().enumerate() {
                        add(NodeToken::Guest(index), guest.as_fd(), PollFlags::IN);
                    }
                }
                for (index, member) in members.iter().enumerate() {
                    if let Some(passage) = &member.passage {
                        add(NodeToken::Member(index), passage.as_fd(), flags(passage));
                    }
                }
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
        }
    }

    fn hear_guest(&mut self, index: usize) {
        let NodeRole::Leader { porch, members } = &mut self.role else {
            return;
        };
        let Some(open) = porch.as_mut().filter(|porch| index < porch.guests.len()) else {
            return;
        };
        if let Some(Some((rank, passage))) = open.hear(index) {
            match members.iter_mut().find(|m| m.rank == rank) {
                Some(member) if member.passage.is_none() => member.passage = Some(passage),
                _ => tell(|| {
                    tracing::warn!(rank, "refused a second connection of a rank of this node")
                }),
            }
        }
        if members.iter().all(|m| m.passage.is_some()) {
            *porch = None;
            self.to_hub.push(Message::Ready);
        }
    }

    fn receive_from_member(&mut self, index: usize) {
        let NodeRole::Leader { members, .. } = &mut self.role else {
            return;
        };
        while let Some(member) = members.get_mut(index) {
            let from = member.rank;
            let Some(passage) = &mut member.passage else {
                return;
            };
            let arrived = match passage.receive() {
                Ok(None) => return,
                Ok(Some(arrived)) if arrived.rank == from => arrived,
                Ok(Some(_)) => {
                    tell(|| {
                        tracing::warn!(rank = from, "a parcel names another rank as its sender")
                    });
                    member.passage = None;
                    return;
                }
                Err(error) => {
                    tell(
                        || tracing::debug!(rank = from, %error, "the passage to a rank of this node ended"),
                    );
                    member.passage = None;
                    return;
                }
            };
            // Descriptors that did not arrive here reach no member, and each member is told so.
            let fds = arrived.fds.map(Arc::new);
            if let Err(reason) = &fds {
                let round = arrived.round;
                tell(|| {
                    tracing::warn!(
                        rank = from,
                        round,
                        reason,
                        "descriptors of a rank of this node did not come"
                    )
                });
            }
            for other in members.iter_mut().filter(|m| m.rank != from) {
                if let Some(passage) = &mut other.passage {
                    passage.push(Parcel {
                        rank: from,
                        round: arrived.round,
                        count: arrived.count,
                        fds: fds.as_ref().ok().map(Arc::clone),
                    });
                }
            }
            let own = fds.and_then(|fds| {
                let own = fds.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>();
                own.map_err(|error| format!("{error}: {}", no_descriptors()))
            });
            self.arrived.push(Arrived {
                fds: own,
                ..arrived
            });
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
                let mut broken = Vec::new();
                for member in members {
                    if let Some(Err(error)) = member.passage.as_mut().map(Passage::flush) {
                        tell(
                            || tracing::debug!(rank = member.rank, %error, "the passage to a rank of this node ended"),
                        );
                        broken.push(member.rank);
                    }
                }
                // A member that does not take anything any more may have sent something before.
                for rank in broken {
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

    /// Checks the clocks. Returns a reason if this rank can take part in no exchange any more.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<String> {
        if matches!(&self.role, NodeRole::Visiting(visit) if !visit.is_connected()) {
            self.receive_from_leader();
        }
        match &mut self.role {
            NodeRole::Leader {
                porch: Some(porch), ..
            } => {
                porch.guests.retain(|guest| now < guest.since + PATIENCE);
                None
            }
            NodeRole::Broken(since) if now >= *since + VERDICT_PATIENCE => {
                self.role = NodeRole::Alone;
                self.held.clear();
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
                let throttled = members
                    .iter()
                    .filter_map(|m| m.passage.as_ref())
                    .any(|p| p.throttled);
                let guests = porch.as_ref().and_then(|porch| {
                    let oldest = porch.guests.first().map(|guest| guest.since + PATIENCE);
                    porch.crowded_until(Instant::now()).or(oldest)
                });
                if throttled { Some(soon()) } else { guests }
            }
            NodeRole::Visiting(visit) if !visit.is_connected() => Some(soon()),
            NodeRole::Member(passage) if passage.throttled => Some(soon()),
            NodeRole::Broken(since) => Some(*since + VERDICT_PATIENCE),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_was_sent_away_for_being_slow_comes_again() {
        let key = Key::of_job(b"a key for tests", "", 2);
        let [mut leader, mut member] = [0, 1].map(|me| Node::new(me, key.clone()));
        leader.start(&[0, 0]);
        member.start(&[0, 0]);
        let Some(Message::Door { name }) = leader.to_hub.pop() else {
            panic!("{leader:?}")
        };
        member.visit(name);
        leader.ready(NodeToken::Porch, Instant::now());
        leader.tick(Instant::now() + PATIENCE);
        std::thread::sleep(Duration::from_secs(1));
        // The member notices, is accepted again, proves itself, and gets the leader's proof.
        member.ready(NodeToken::Leader, Instant::now());
        leader.ready(NodeToken::Porch, Instant::now());
        member.ready(NodeToken::Leader, Instant::now());
        leader.ready(NodeToken::Guest(0), Instant::now());
        member.ready(NodeToken::Leader, Instant::now());
        for node in [leader, member] {
            assert!(matches!(node.to_hub[..], [Message::Ready]), "{node:?}");
        }
    }

    #[test]
    fn nothing_overtakes_what_is_held() {
        let mut node = Node::new(1, Key::of_job(b"a key for tests", "", 2));
        node.role = NodeRole::Outside;
        let fd = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let contribution = |round| Message::Contribution {
            rank: 1,
            round,
            handles: u8::from(round == 0),
            label: String::new(),
            bytes: Vec::new(),
        };
        node.contribute(0, vec![fd], contribution(0));
        node.contribute(1, Vec::new(), contribution(1));
        node.say(Message::Leave);
        assert!(node.to_hub.is_empty());
        let rounds = node.held.iter().map(|message| match message {
            Message::Contribution { round, .. } => Some(*round),
            _ => None,
        });
        assert_eq!(rounds.collect::<Vec<_>>(), [Some(0), Some(1), None]);
    }
}
