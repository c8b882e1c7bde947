//! The thread of a rank's control plane. It waits on all sockets at once, and drives the state machines.
//!
//! # Model
//!
//! The thread runs one loop: take commands of the program, move messages between rank and hub until there are none,
//! give the kernel as much as it takes, sleep in `poll`. No read or write ever blocks, so a peer that is stuck delays
//! no other. If much has arrived at once, the hub handles it in turns, and heartbeats go out between them
//! ([`Service::breathe`]).
//!
//! The thread outlives the rank's part in the job. Rank 0's goes on until all others have left, and any other's until
//! the hub closes the connection. So a rank that leaves does not wait for the others ([`crate::process`] says which
//! calls do).
//!
//! On every rank but 0 the thread wakes when something arrives. The hub's heartbeat is answered at once, so an idle
//! rank wakes once per interval.
//!
//! # Failure
//!
//! Silence is counted in wake-ups of this thread, and not in time, and only after everything that had arrived was read.
//! So if a whole job is suspended and continued, each rank has missed one heartbeat, and not many. If this thread
//! panics, the control plane is closed with that reason.

use tidegate_hal::lock;
use tidegate_hal::tell;

use crate::error::BootError;
use crate::hub::{Hub, HubToken};
use crate::link::{Body, Link};
use crate::mail::Mail;
use crate::node::{Node, NodeToken};
use crate::shared::{RankPhase, RankShared, ServiceRequest};
use crate::wire::{Message, Said};
use rustix::event::PollFlags;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long rank 0, when it ends after a failure, lets the others read its last message before its connections end.
const LAST_WORDS: Duration = Duration::from_millis(600);
/// How much longer than rank 0 the others wait for the start, because only rank 0 knows which ranks are missing.
const START_MARGIN: Duration = Duration::from_secs(5);

pub(crate) struct Leaf {
    pub(crate) link: Option<Link<TcpStream>>,
    /// When something was last heard, or its absence was noted.
    pub(crate) looked: Instant,
}

impl Leaf {
    /// Whether nothing was heard from the hub since the absence was last noted.
    fn is_silent(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.quiet > 0)
    }
}

pub(crate) enum Role {
    Hub(Box<Hub>),
    Leaf(Box<Leaf>),
}

#[derive(Clone, Copy, Debug)]
enum Token {
    Wake,
    Hub(HubToken),
    /// The connection to the hub.
    Link,
    Node(NodeToken),
}

/// How this rank is ending.
enum Ending {
    /// Its last message is still to be sent.
    Wanted(Message),
    /// It was sent at this moment.
    Said { since: Instant, in_good_order: bool },
}

pub(crate) struct Service {
    pub(crate) shared: Arc<RankShared>,
    pub(crate) role: Role,
    pub(crate) node: Node,
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
    pub(crate) started: Instant,
    pub(crate) timeout: Duration,
    /// `None`: no heartbeats are sent.
    next_beat: Option<Instant>,
    /// When the hub looks for silent ranks next.
    next_look: Option<Instant>,
    ending: Option<Ending>,
    bye: bool,
    nodes: Vec<usize>,
}

impl Service {
    pub(crate) fn new(
        shared: Arc<RankShared>,
        role: Role,
        node: Node,
        heartbeat: Duration,
        silence: Duration,
        started: Instant,
        timeout: Duration,
    ) -> Self {
        let next_beat = Instant::now().checked_add(heartbeat);
        Self {
            shared,
            role,
            node,
            heartbeat,
            silence,
            started,
            timeout,
            next_beat,
            next_look: next_beat,
            ending: None,
            bye: false,
            nodes: Vec::new(),
        }
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
            self.serve(ready, now);
            self.tick(now);
        }
        drop(closing);
    }

    /// Handles all sockets that are ready, in turns.
    fn serve(&mut self, ready: Vec<(Token, PollFlags)>, now: Instant) {
        for (token, flags) in ready {
            self.handle(token, flags, now);
            self.breathe();
        }
        while let Role::Hub(hub) = &mut self.role
            && hub.has_backlog()
            && lock(&self.shared.state).requests.is_empty()
        {
            hub.go_on();
            self.breathe();
        }
    }

    /// Called on the hub after some work. Sends what is queued if it is enough, and heartbeats in time.
    fn breathe(&mut self) {
        self.shared.turn();
        let Role::Hub(hub) = &mut self.role else {
            return;
        };
        let now = Instant::now();
        let beats = self.next_beat.is_some_and(|at| now >= at);
        if beats {
            self.next_beat = now.checked_add(self.heartbeat);
            hub.beat();
        }
        if beats || hub.is_loaded() {
            hub.flush();
        }
    }

    fn me(&self) -> usize {
        self.shared.rank
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
                        self.bye = false;
                    }
                }
                ServiceRequest::Over => match &mut self.role {
                    Role::Hub(hub) => hub.depart(0),
                    Role::Leaf(leaf) => leaf.link = None,
                },
            }
        }
    }

    fn tell_hub(&mut self, message: Message) {
        #[cfg(test)]
        self.count_message();
        match &mut self.role {
            Role::Hub(hub) => hub.receive(0, message),
            Role::Leaf(leaf) => {
                if let Some(link) = &mut leaf.link
                    && let Err(error) = link.push(&Body::of(&message))
                {
                    self.hub_lost(&error.to_string());
                }
            }
        }
    }

    /// Moves messages until there are none.
    fn pump(&mut self) {
        loop {
            for message in std::mem::take(&mut self.node.to_hub) {
                self.tell_hub(message);
            }
            self.deliver_parcels();
            if let Role::Hub(hub) = &mut self.role
                && let Some(message) = hub.own.pop_front()
            {
                self.deliver(message);
                continue;
            }
            self.node.flush();
            self.last_words();
            match &mut self.role {
                Role::Hub(hub) => hub.flush(),
                Role::Leaf(leaf) => {
                    if let Some(link) = &mut leaf.link
                        && link.wants_write()
                        && let Err(error) = link.flush()
                    {
                        // The hub's earlier messages count; the end is found behind them.
                        self.hear_hub();
                        self.hub_lost(&error.to_string());
                    }
                }
            }
            let own = matches!(&self.role, Role::Hub(hub) if !hub.own.is_empty());
            if !own && self.node.to_hub.is_empty() && self.node.arrived.is_empty() {
                break;
            }
        }
        if let (
            Role::Hub(hub),
            Some(Ending::Said {
                in_good_order: false,
                ..
            }),
        ) = (&mut self.role, &self.ending)
        {
            hub.hang_up();
        }
    }

    /// Sends this rank's last message, once everything that others need from it has been sent.
    fn last_words(&mut self) {
        let in_good_order = match &self.ending {
            Some(Ending::Wanted(message)) => matches!(message, Message::Leave),
            _ => return,
        };
        if in_good_order && !self.node.is_flushed() {
            return;
        }
        let since = Instant::now();
        let said = self.ending.replace(Ending::Said {
            since,
            in_good_order,
        });
        if let Some(Ending::Wanted(message)) = said {
            self.node.say(message);
        }
    }

    /// Until when this rank waits for an answer, after it has said that it failed.
    fn patient_until(&self, since: Instant) -> Option<Instant> {
        since.checked_add(match self.role {
            Role::Hub(_) => LAST_WORDS,
            Role::Leaf(_) => self.silence,
        })
    }

    fn is_finished(&self) -> bool {
        let state = lock(&self.shared.state);
        if state.abandoned {
            return true;
        }
        let failed = matches!(state.phase, RankPhase::Failed(_));
        drop(state);
        let patient = |since: &Instant| {
            let until = self.patient_until(*since);
            until.is_none_or(|until| Instant::now() < until)
        };
        match (&self.role, &self.ending) {
            (
                Role::Leaf(leaf),
                Some(Ending::Said {
                    since,
                    in_good_order: false,
                }),
            ) => self.bye || leaf.link.is_none() || !patient(since),
            (Role::Leaf(leaf), Some(Ending::Said { .. })) => leaf.link.is_none(),
            (Role::Leaf(_), _) => failed,
            (
                Role::Hub(hub),
                Some(Ending::Said {
                    since,
                    in_good_order: false,
                }),
            ) => hub.is_hung_up() || !patient(since),
            // Rank 0 serves the control plane of the others until the last of them has ended.
            (Role::Hub(hub), Some(Ending::Said { .. })) => hub.is_deserted(),
            (Role::Hub(hub), _) => failed && hub.is_flushed(),
        }
    }

    #[cfg(test)]
    fn count_message(&self) {
        let order = std::sync::atomic::Ordering::Relaxed;
        self.shared.messages.fetch_add(1, order);
    }

    /// Handles a message of the hub to this rank.
    fn deliver(&mut self, message: Message) {
        #[cfg(test)]
        self.count_message();
        let size = self.shared.size;
        let known = |rank: u32| ((rank as usize) < size).then_some(rank as usize);
        match message {
            Message::Start { nodes, seed } if nodes.len() == size => {
                self.nodes = nodes.into_iter().map(|node| node as usize).collect();
                self.node.start(&self.nodes, seed);
            }
            Message::Go => self.shared.go(self.nodes.clone()),
            Message::Abort { reason } => self.shared.fail(BootError::Aborted(reason)),
            Message::Beat => {
                if let Role::Leaf(_) = self.role {
                    self.tell_hub(Message::Beat);
                }
            }
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
                    self.hub_lost("it sent the answer to a question that nobody asked");
                }
            }
            Message::Notify { from, bytes, .. } => self.shared.message(from as usize, bytes),
            Message::Lost {
                rank,
                reason,
                first,
            } => match known(rank) {
                Some(rank) if rank == self.me() => {
                    self.shared.is_given_up();
                    self.hub_lost(&format!("it gave this rank up: {reason}"))
                }
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
                self.bye = true;
                self.shared.left();
            }
            _ => self.hub_lost("it sent a message that only ranks send"),
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
            self.hub_lost("it sent something for a collective call out of order");
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

    /// Notes that the connection to the hub is lost, and with it all knowledge of the others.
    fn hub_lost(&mut self, reason: &str) {
        match &mut self.role {
            Role::Leaf(leaf) => {
                if leaf.link.take().is_none() {
                    return;
                }
            }
            Role::Hub(_) => {
                tell(|| tracing::error!(reason, "rank 0 contradicts itself"));
                return;
            }
        }
        if self.bye {
            return;
        }
        self.node.forget(0);
        self.deliver_parcels();
        self.shared.cut_off(reason);
    }

    fn hear_hub(&mut self) {
        let Role::Leaf(leaf) = &mut self.role else {
            return;
        };
        let Some(link) = &mut leaf.link else { return };
        leaf.looked = Instant::now();
        link.heard = false;
        let end = link.fill().err();
        if link.heard {
            link.quiet = 0;
        }
        loop {
            let Role::Leaf(leaf) = &mut self.role else {
                return;
            };
            let Some(link) = &mut leaf.link else { return };
            match link.next() {
                Ok(Some(message)) => self.deliver(message),
                Ok(None) => break,
                Err(error) => {
                    self.hub_lost(&error.to_string());
                    return;
                }
            }
        }
        if let Some(error) = end {
            self.hub_lost(&error.to_string());
        }
    }

    fn interest<'a>(&'a self, mut add: impl FnMut(Token, BorrowedFd<'a>, PollFlags)) {
        add(Token::Wake, self.shared.wake.as_fd(), PollFlags::IN);
        match &self.role {
            Role::Hub(hub) => hub.interest(|token, fd, flags| add(Token::Hub(token), fd, flags)),
            Role::Leaf(leaf) => {
                if let Some(link) = &leaf.link {
                    let write = if link.wants_write() {
                        PollFlags::OUT
                    } else {
                        PollFlags::empty()
                    };
                    add(Token::Link, link.stream().as_fd(), PollFlags::IN | write);
                }
            }
        }
        self.node
            .interest(|token, fd, flags| add(Token::Node(token), fd, flags));
    }

    fn handle(&mut self, token: Token, flags: PollFlags, now: Instant) {
        // An error or a hang-up is found by reading. Data that can be written is written before the next sleep.
        let read =
            flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        match token {
            Token::Wake => {
                let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
            }
            Token::Hub(token) if read => {
                if let Role::Hub(hub) = &mut self.role {
                    hub.ready(token, now);
                }
            }
            Token::Link if read => self.hear_hub(),
            Token::Node(token) if read => self.node.ready(token, now),
            Token::Hub(_) | Token::Link | Token::Node(_) => {}
        }
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

#[cfg(test)]
mod tests;
mod time;
