//! One rank's part in passing descriptors within its node.
//!
//! # Model
//!
//! This is a state machine without a thread. The service gives it readiness and letters, and takes from it the messages
//! for the hub ([`Node::to_hub`]) and the descriptors that have arrived ([`Node::arrived`]).
//!
//! A letter waits until its descriptors are with the receiver, and everything that this rank says later waits behind
//! it.
//!
//! # Failure
//!
//! Before the job runs, a failure here ends the rendezvous with its reason. Later, descriptors that cannot be passed on
//! are lost: the letter goes without them and says why. What waits for a rank that is gone waits no longer.

use tidegate_hal::limits::WithLimit;

use crate::door::{Arrived, Door, Parcel, Step, Visit, name_of};
use crate::secret::Key;
use crate::shared::Outgoing;
use crate::wire::{DoorName, Message};
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How many ranks may be visited at a time. Connections that are not needed any more are kept until there are so many.
const MOST_VISITS: usize = 16;

/// A socket of a node that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeToken {
    /// Another rank comes to this one's door.
    Door,
    /// Ranks that have come in have said something.
    Guests,
    /// The door of this rank.
    Visit(usize),
}

/// A message that waits for its turn.
#[derive(Debug)]
struct Held {
    message: Message,
    /// If this is a letter whose descriptors are on their way: its receiver and its round.
    awaits: Option<(usize, u64)>,
}

#[derive(Debug)]
pub(crate) struct Node {
    me: usize,
    key: Key,
    /// The random part of the names of all doors, once it is known.
    seed: DoorName,
    /// `None`: no other rank is on this node, or that is not known yet.
    door: Option<Door>,
    /// The one that was used last stands last.
    visits: VecDeque<Visit>,
    /// Parcels for ranks that cannot be visited yet.
    waiting: VecDeque<Parcel>,
    held: VecDeque<Held>,
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
            seed: DoorName::default(),
            door: None,
            visits: VecDeque::new(),
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            to_hub: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// Opens this rank's door, after all ranks have joined. `nodes` is the node of each rank.
    pub(crate) fn start(&mut self, nodes: &[usize], seed: DoorName) {
        self.seed = seed;
        let here = nodes.iter().filter(|node| **node == nodes[self.me]);
        if here.count() > 1 {
            let name = name_of(&self.key, &seed, self.me);
            match Door::open(self.key.clone(), name, self.me) {
                Ok(door) => self.door = Some(door),
                Err(error) => {
                    let (me, error) = (self.me, WithLimit(&error));
                    let what = "cannot listen for the ranks of this node";
                    let reason = format!("rank {me}: {what}: {error}");
                    return self.to_hub.push(Message::Fail {
                        reason,
                        first: None,
                    });
                }
            }
        }
        self.to_hub.push(Message::Ready);
    }

    /// Sends a letter to the hub, after its descriptors.
    pub(crate) fn write(&mut self, letter: Outgoing) {
        let Outgoing {
            to,
            round,
            bytes,
            fds,
        } = letter;
        let message = Message::Letter {
            rank: to as u32,
            round,
            handles: fds.len() as u8,
            lost: None,
            bytes,
        };
        if fds.is_empty() {
            return self.say(message);
        }
        self.held.push_back(Held {
            message,
            awaits: Some((to, round)),
        });
        let parcel = Parcel { to, round, fds };
        let place = self.visits.iter().position(|visit| visit.to == to);
        match place.filter(|place| self.visits[*place].takes_more()) {
            Some(place) => {
                if let Some(mut visit) = self.visits.remove(place) {
                    visit.push(parcel);
                    self.visits.push_back(visit);
                }
            }
            None => self.waiting.push_back(parcel),
        }
    }

    /// Sends a message to the hub, after those that are held.
    pub(crate) fn say(&mut self, message: Message) {
        if self.held.is_empty() {
            self.to_hub.push(message)
        } else {
            let awaits = None;
            self.held.push_back(Held { message, awaits })
        }
    }

    /// Whether this rank has sent everything.
    pub(crate) fn is_flushed(&self) -> bool {
        self.held.is_empty()
    }

    /// Notes that a rank is gone. Nothing is kept for it.
    pub(crate) fn forget(&mut self, rank: usize) {
        // Parcels that it had sent before count.
        if let Some(door) = &mut self.door {
            door.see_off(rank, &mut self.arrived);
        }
        self.visits.retain(|visit| visit.to != rank);
        self.waiting.retain(|parcel| parcel.to != rank);
        // The hub passes nothing on to it.
        for held in &mut self.held {
            held.awaits = held.awaits.filter(|(to, _)| *to != rank);
        }
        self.release();
    }

    pub(crate) fn interest<'a>(
        &'a self,
        mut add: impl FnMut(NodeToken, BorrowedFd<'a>, PollFlags),
    ) {
        if let Some(door) = &self.door {
            door.interest(Instant::now(), |is_guest, fd| {
                let token = match is_guest {
                    true => NodeToken::Guests,
                    false => NodeToken::Door,
                };
                add(token, fd, PollFlags::IN);
            });
        }
        for visit in self.visits.iter().filter(|visit| visit.is_connected()) {
            let write = match visit.wants_write() {
                true => PollFlags::OUT,
                false => PollFlags::empty(),
            };
            add(
                NodeToken::Visit(visit.to),
                visit.as_fd(),
                PollFlags::IN | write,
            );
        }
    }

    /// A socket can be read.
    pub(crate) fn ready(&mut self, token: NodeToken, now: Instant) {
        match (token, &mut self.door) {
            (NodeToken::Door, Some(door)) => door.admit(now),
            (NodeToken::Guests, Some(door)) => door.hear(&mut self.arrived),
            (NodeToken::Visit(to), _) => {
                // It goes on with the next flush.
                let visits = self.visits.iter_mut().filter(|visit| visit.to == to);
                visits.for_each(|visit| visit.can_read = true);
            }
            (_, None) => {}
        }
    }

    /// Sends what can be sent.
    pub(crate) fn flush(&mut self) {
        loop {
            self.advance();
            if !self.begin_visits() {
                break;
            }
        }
        self.release();
    }

    fn advance(&mut self) {
        let mut visits = std::mem::take(&mut self.visits);
        visits.retain_mut(|visit| {
            if !visit.can_go_on() {
                return true;
            }
            let to = visit.to;
            match visit.advance(|round| self.settle((to, round), None)) {
                Step::Stays => true,
                Step::Over => false,
                Step::Failed(why, rounds) => {
                    for round in rounds {
                        self.settle((to, round), Some(&why));
                    }
                    false
                }
            }
        });
        self.visits = visits;
    }

    /// Begins to visit ranks for which something waits, as far as there is room. Returns whether a visit has begun.
    fn begin_visits(&mut self) -> bool {
        let mut has_begun = false;
        while let Some(to) = self.waiting.front().map(|parcel| parcel.to) {
            // The host wants the old connection to be closed first.
            if self.visits.iter().any(|visit| visit.to == to) {
                break;
            }
            if self.visits.len() >= MOST_VISITS {
                let Some(idle) = self.visits.iter().position(Visit::is_idle) else {
                    break;
                };
                self.visits.remove(idle);
            }
            let name = name_of(&self.key, &self.seed, to);
            let started = Visit::start(self.key.clone(), name, self.me, to);
            let waiting = std::mem::take(&mut self.waiting).into_iter();
            let (mine, others): (VecDeque<_>, _) = waiting.partition(|parcel| parcel.to == to);
            self.waiting = others;
            match started {
                Ok(mut visit) => {
                    mine.into_iter().for_each(|parcel| visit.push(parcel));
                    self.visits.push_back(visit);
                    has_begun = true;
                }
                Err(why) => {
                    for parcel in mine {
                        self.settle((to, parcel.round), Some(&why));
                    }
                }
            }
        }
        has_begun
    }

    /// Notes that the descriptors of a letter are with its receiver, or why they are lost.
    fn settle(&mut self, parcel: (usize, u64), why: Option<&str>) {
        let is_it = |held: &&mut Held| held.awaits == Some(parcel);
        let Some(held) = self.held.iter_mut().find(is_it) else {
            return;
        };
        held.awaits = None;
        if let Message::Letter { lost, .. } = &mut held.message {
            *lost = why.map(str::to_owned);
        }
    }

    /// Sends the messages that wait for nothing more.
    fn release(&mut self) {
        let is_free = |held: &&Held| held.awaits.is_none();
        let free = self.held.iter().take_while(is_free).count();
        let free = self.held.drain(..free).map(|held| held.message);
        self.to_hub.extend(free);
    }

    /// Checks the clocks.
    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some(door) = &mut self.door {
            door.tick(now);
        }
    }

    /// When [`Node::tick`] and [`Node::flush`] have to be called next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let needs_time = self.visits.iter().any(Visit::needs_time);
        let soon = needs_time.then(|| Instant::now() + Duration::from_millis(10));
        let door = self.door.as_ref().and_then(Door::next_tick);
        soon.into_iter().chain(door).min()
    }
}

#[cfg(test)]
mod tests;
