//! The thread of a rank's control plane. It waits on all sockets at once, and drives the state machines.
//!
//! # Model
//!
//! The thread runs one loop: take commands of the program, move messages between rank, parent and children until there
//! are none, give the kernel as much as it takes, sleep in `poll`. No read or write ever blocks, so a peer that is stuck
//! delays no other. On rank 0 the hub is here, too.
//!
//! The thread outlives the rank's part in the job. It goes on as long as there are ranks below it in the tree, and on
//! rank 0 until all others have left. So a rank that leaves does not wait for the others ([`crate::process`] says which
//! calls do), but for those below it at most for [`HOLD`](crate::hub::HOLD).
//!
//! The thread wakes when something arrives. A parent's heartbeat is answered at once, so an idle rank wakes once per
//! interval.
//!
//! # Failure
//!
//! Silence is counted in wake-ups of this thread, and not in time, and only after everything that had arrived was read.
//! So if a whole job is suspended and continued, each rank has missed one heartbeat, and not many. If this thread
//! panics, the control plane is closed with that reason.
//!
//! If the parent ends, another thread finds a new one ([`Reach::another_parent`]). If rank 0 ends, its children tell
//! those below them.

use tidegate_hal::lock;

use crate::branch::Branch;
use crate::callers::{Callers, room_for};
use crate::error::BootError;
use crate::hub::Hub;
use crate::link::Link;
use crate::mail::Mail;
use crate::node::{Node, NodeToken};
use crate::reach::{Parent, Reach};
use crate::shared::{RankShared, ServiceRequest};
use crate::wire::{Message, Said};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How long the end of a process waits for ranks below it that go on. They would look for other parents, and at the end
/// of a large job that would be work for nothing. It is less than the time after which a wait is reported.
const LINGERS: Duration = Duration::from_millis(800);
/// How long rank 0, when it ends after a failure, lets the others read its last message before its connections end.
const LAST_WORDS: Duration = Duration::from_millis(600);
/// How long rank 0, when it ends after a failure, waits if some ranks have just lost their parent. They have to find
/// another one first, so as not to take rank 0's end for the cause.
const LAST_WORDS_TO_ORPHANS: Duration = Duration::from_secs(3);
/// How much longer than rank 0 the others wait for the start, because only rank 0 knows which ranks are missing.
pub(crate) const START_MARGIN: Duration = Duration::from_secs(5);

/// How many ranks may be guests at a time, if there are descriptors for them.
const MOST_GUESTS: usize = 96;

#[derive(Clone, Copy, Debug)]
enum Token {
    Wake,
    /// Somebody calls, or a caller says something.
    Callers(Option<usize>),
    /// A rank of the job that is not a child, by its number among those.
    Guest(usize),
    Child(u32),
    Parent,
    Node(NodeToken),
}

/// How this rank is ending.
enum Ending {
    /// Its last message is still to be sent.
    Wanted(Message),
    /// Its last message was sent at this moment.
    Said { since: Instant, in_good_order: bool },
}

/// What is above this rank in the tree.
enum Above {
    /// This is rank 0, which has the hub.
    Hub(Box<Hub>),
    Parent {
        rank: u32,
        link: Box<Link<TcpStream>>,
        /// When something was last heard, or its absence was noted.
        looked: Instant,
    },
    /// The parent has ended, and another thread looks for a new one.
    Searched(Receiver<Result<Parent, String>>),
    /// This rank is not connected to the others any more.
    Nothing,
}

/// What a service is made of.
pub(crate) struct Parts {
    pub(crate) shared: Arc<RankShared>,
    pub(crate) node: Node,
    pub(crate) hub: Option<Hub>,
    pub(crate) parent: Option<Parent>,
    /// `None`: no rank calls here.
    pub(crate) callers: Option<Callers>,
    pub(crate) reach: Reach,
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
    pub(crate) started: Instant,
    pub(crate) timeout: Duration,
}

pub(crate) struct Service {
    shared: Arc<RankShared>,
    node: Node,
    branch: Branch,
    above: Above,
    children: BTreeMap<u32, Link<TcpStream>>,
    callers: Option<Callers>,
    /// Ranks that have proved themselves, and are not children (yet).
    guests: Vec<(u32, Link<TcpStream>)>,
    /// How many guests there may be at a time. Others wait until they are let in.
    most_guests: usize,
    reach: Reach,
    heartbeat: Duration,
    silence: Duration,
    started: Instant,
    timeout: Duration,
    /// When this rank next sends its children heartbeats, and looks for silent ones. `None`: never.
    next_beat: Option<Instant>,
    ending: Option<Ending>,
    /// When rank 0 has acknowledged that this rank ends.
    bye: Option<Instant>,
    /// Until when the end of the process waits for the ranks below, after this rank has left.
    ends_at: Option<Instant>,
    nodes: Vec<usize>,
    /// Whether connections were shut down, since rank 0 has failed.
    is_hung_up: bool,
    /// When the clocks were looked at.
    looked: Instant,
}

impl Service {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            shared,
            node,
            hub,
            parent,
            callers,
            reach,
            heartbeat,
            silence,
            started,
            timeout,
        } = parts;
        let now = Instant::now();
        let next_beat = now.checked_add(heartbeat);
        let above = match (hub, parent) {
            (Some(hub), _) => Above::Hub(Box::new(hub)),
            (None, Some(Parent { rank, link })) => Above::Parent {
                rank,
                link: Box::new(link),
                looked: now,
            },
            (None, None) => Above::Nothing,
        };
        let mut service = Self {
            branch: Branch::new(shared.rank as u32),
            shared,
            node,
            above,
            children: BTreeMap::new(),
            callers,
            guests: Vec::new(),
            most_guests: room_for(MOST_GUESTS),
            reach,
            heartbeat,
            silence,
            started,
            timeout,
            next_beat,
            ending: None,
            bye: None,
            ends_at: None,
            nodes: Vec::new(),
            is_hung_up: false,
            looked: now,
        };
        if service.shared.rank != 0 {
            service.branch.find_parent(now);
        }
        service
    }

    /// Runs until this rank has ended.
    pub(crate) fn run(mut self) {
        self.shared
            .serve_here(self.look_after(), self.patience(), self.silence);
        let closing = Closing(Arc::clone(&self.shared));
        loop {
            self.shared.turn();
            self.take_commands();
            self.pump();
            if self.is_finished() {
                break;
            }
            let ready = self.sleep();
            let now = Instant::now();
            for (token, flags) in ready {
                self.handle(token, flags, now);
            }
            self.tick(now);
        }
        drop(closing);
    }

    fn me(&self) -> usize {
        self.shared.rank
    }

    fn is_rank_0(&self) -> bool {
        matches!(self.above, Above::Hub(_))
    }

    fn take_commands(&mut self) {
        let commands = std::mem::take(&mut lock(&self.shared.state).requests);
        for command in commands {
            match command {
                ServiceRequest::Write(letter) => self.node.write(letter),
                // The message goes through the node, so that it does not overtake a letter that waits for its descriptors.
                ServiceRequest::Say(message) => self.node.say(message),
                ServiceRequest::End(message) => {
                    // A rank that has left may turn out to have failed.
                    if self.ending.is_none() || matches!(message, Message::Fail { .. }) {
                        self.ending = Some(Ending::Wanted(message));
                        self.bye = None;
                    }
                }
                ServiceRequest::Over => match &mut self.above {
                    Above::Hub(hub) => hub.depart(0, Instant::now()),
                    _ => self.ends_at = Some(Instant::now() + LINGERS),
                },
            }
        }
    }

    /// Moves messages until there are none.
    fn pump(&mut self) {
        loop {
            let now = Instant::now();
            for message in std::mem::take(&mut self.node.to_hub) {
                #[cfg(test)]
                self.count_messages(1);
                self.branch.say(message, now);
            }
            self.deliver_parcels();
            self.pass_up(now);
            if let Some(message) = self.branch.own.pop_front() {
                self.deliver(message);
                continue;
            }
            self.node.flush();
            self.last_words();
            self.see_off_those_given_up();
            self.flush();
            let is_idle = self.branch.own.is_empty()
                && self.node.to_hub.is_empty()
                && self.node.arrived.is_empty();
            if is_idle {
                break;
            }
        }
        if self.failed_at().is_some() && self.is_rank_0() {
            self.hang_up();
        }
    }

    #[cfg(test)]
    fn count_messages(&self, messages: usize) {
        let order = std::sync::atomic::Ordering::Relaxed;
        self.shared.messages.fetch_add(messages as u64, order);
    }

    /// Handles a message of the hub to this rank.
    fn deliver(&mut self, message: Message) {
        #[cfg(test)]
        self.count_messages(1);
        let size = self.shared.size;
        let known = |rank: u32| ((rank as usize) < size).then_some(rank as usize);
        match message {
            Message::Start { nodes, seed } if nodes.len() == size => {
                self.nodes = nodes.into_iter().map(|node| node as usize).collect();
                self.node.start(&self.nodes, seed);
            }
            Message::Go => self.shared.go(self.nodes.clone()),
            Message::Abort { reason } => self.shared.fail(BootError::Aborted(reason)),
            Message::Said { round, said } => {
                for Said { rank, bytes } in said {
                    self.receive(rank, round, |mail, rank| mail.said(rank, round, bytes));
                }
            }
            Message::Letter {
                rank,
                round,
                handles,
                lost,
                bytes,
            } => self.receive(rank, round, |mail, rank| {
                if let Some(why) = lost {
                    mail.fds(rank, round, Err(why));
                }
                mail.letter(rank, round, handles, bytes)
            }),
            Message::Decided { round, outcome } => {
                self.receive(0, round, |mail, _| mail.decided(round, outcome))
            }
            Message::Founded { team } => {
                if !self.shared.receive(|desks| desks.founded(team)) {
                    self.cut_off("it sent the answer to a question that nobody asked");
                }
            }
            Message::Notify { from, bytes, .. } => self.shared.message(from as usize, bytes),
            Message::Lost {
                rank,
                reason,
                first,
            } => match known(rank) {
                Some(rank) if rank == self.me() => self.given_up(&reason),
                Some(rank) => {
                    let first = first.and_then(known);
                    self.shared.failed_because_of(rank, first.unwrap_or(rank));
                    self.peer_ended(rank, Some(&reason))
                }
                None => {}
            },
            Message::Left { ranks } => {
                for rank in ranks.into_iter().filter_map(known) {
                    self.peer_ended(rank, None);
                }
            }
            Message::Bye => {
                self.bye = Some(Instant::now());
                lock(&self.shared.state).confirmed = true;
                self.see_off();
            }
            _ => self.cut_off("it sent a message that only ranks send"),
        }
    }

    /// Notes what rank `from` has sent for a collective call.
    fn receive(
        &mut self,
        from: u32,
        round: u64,
        note: impl FnOnce(&mut Mail, usize) -> Option<()>,
    ) {
        let from = from as usize;
        let is_known = from < self.shared.size;
        if !is_known || !self.shared.receive_in(round, |mail| note(mail, from)) {
            self.cut_off("it sent something for a collective call out of order");
        }
    }

    fn deliver_parcels(&mut self) {
        for arrived in std::mem::take(&mut self.node.arrived) {
            self.shared
                .fds_arrived(arrived.from, arrived.round, arrived.fds);
        }
    }

    fn peer_ended(&mut self, rank: usize, lost: Option<&str>) {
        self.node.forget(rank);
        // This comes before the end itself, because parcels that have arrived decide how calls end.
        self.deliver_parcels();
        self.shared.peer_ended(rank, lost);
    }
}

/// Closes the control plane when the service ends, for whatever reason.
struct Closing(Arc<RankShared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() {
            "the service behind it panicked"
        } else {
            "this rank has left the job"
        };
        self.0.close(reason);
    }
}

mod ends;
mod links;
mod time;
