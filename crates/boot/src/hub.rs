//! The hub, which is a part of rank 0: it puts all messages into one order, and decides.
//!
//! # Model
//!
//! The ranks form a tree ([`Branch`](crate::branch)), and the hub is above its root. It is a state machine without
//! sockets. What ranks say comes up to it, and it says what ranks are to hear, in one order. It alone decides how a
//! collective call ends ([`Rounds`](crate::rounds::Rounds)), and tells all ranks of the team ([`Teams`]). Letters wait for
//! the next message, usually the decision, so that their receivers wake once for both. Rank 0 itself is treated like any
//! other rank.
//!
//! The hub also says where a rank hangs in the tree ([`Places`]): when it joins, and when its parent has ended.
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
//! A rank is [`Lost`](Message::Lost) to all others if its parent says that the connection has ended, and it had not left.
//! The ranks below it are *orphans*. They ask for another parent, and are lost if they do not do so in time. The hub gives
//! them one only when it knows that the old one is gone: then nothing that they have said is still on its way through
//! that one. The old one may also be a parent that they were only just given. They may have reached it
//! before the hub hears of that.
//!
//! If a rank is lost before the job runs, the rendezvous ends for all ranks, with the reason.

use crate::hop::{Hop, Item, Passed, To, Up};
use crate::set::RankSet;
use crate::teams::Teams;
use crate::wire::{DoorName, Message, NodeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_hal::ids::TeamId;
use tidegate_hal::tell;

#[cfg(test)]
pub(crate) use places::ARITY;
pub(crate) use places::arity_of;

/// For how long the others are not told that a rank has left, since it may turn out that it has failed.
pub(crate) const HOLD: Duration = Duration::from_millis(300);

/// For how long departures are gathered before the others are told: this time for every [`GATHERS_FOR`] ranks of the job,
/// but at most [`HOLD`]. At the end of a job all leave, and each message about it wakes all that are left. A large job
/// that told this often would be busy with nothing else.
const GATHERS: Duration = Duration::from_millis(20);
const GATHERS_FOR: usize = 64;
/// The longest wait for an orphan.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HubPhase {
    /// Some ranks are missing.
    Gathering,
    /// All ranks are there, and open their doors.
    Opening,
    Running,
    Aborted,
}

/// A rank whose parent has ended.
#[derive(Clone, Copy, Debug)]
struct Orphan {
    /// When the orphan is given up.
    until: Instant,
    /// The orphan has heard the messages up to this number.
    heard: u64,
}

#[derive(Debug)]
pub(crate) struct Hub {
    size: usize,
    phase: HubPhase,
    /// Random bytes for the names of the ranks' doors.
    seed: DoorName,
    places: Places,
    /// The ranks that have a parent, before the job begins.
    placed: RankSet,
    nodes: Vec<u32>,
    ready: RankSet,
    gone: Vec<bool>,
    /// Ranks that have left, and when the others are told.
    leaving: BTreeMap<u32, Instant>,
    /// The number of the last thing that each rank has said.
    said: Vec<u64>,
    teams: Teams,
    gathered: HashMap<TeamId, Gathered>,
    /// Ranks that have left, of which the others have still to be told, and since when there are any.
    departed: Vec<u32>,
    departed_since: Option<Instant>,
    orphans: BTreeMap<u32, Orphan>,
    /// The number of the last [`Message::Welcome`].
    welcomed: u64,
    /// All ranks in the tree have heard the messages up to this number.
    heard: u64,
    /// Ranks that ask for a parent, and until when they may wait.
    asking: BTreeMap<u32, Instant>,
    /// How long an orphan may take to find another parent.
    silence: Duration,
    log: Log,
    /// When something was last handled.
    now: Instant,
    /// What rank 0's branch passes on next.
    out: Vec<Arc<Passed>>,
    /// Whether all of `out` can wait for the next message.
    can_wait: bool,
    /// The answers to ranks without a parent.
    pub(crate) answers: Vec<(u32, Hop)>,
}

impl Hub {
    /// The hub of a job in which ranks have so many children (`None`: all are children of rank 0), and rank 0 is on this
    /// node.
    pub(crate) fn new(
        size: usize,
        arity: Option<usize>,
        node: NodeId,
        seed: DoorName,
        silence: Duration,
    ) -> Self {
        Self {
            size,
            phase: HubPhase::Gathering,
            seed,
            places: Places::new(size, arity, node),
            placed: RankSet::of(0),
            nodes: Vec::new(),
            ready: RankSet::default(),
            gone: vec![false; size],
            leaving: BTreeMap::new(),
            said: vec![0; size],
            teams: Teams::new(size),
            gathered: HashMap::new(),
            departed: Vec::new(),
            departed_since: None,
            orphans: BTreeMap::new(),
            welcomed: 0,
            heard: 0,
            asking: BTreeMap::new(),
            // A limit that is too long to be reached means none.
            silence: silence.min(LONGEST),
            log: Log::default(),
            now: Instant::now(),
            out: Vec::new(),
            can_wait: true,
            answers: Vec::new(),
        }
    }

    /// The ranks that the rendezvous still waits for.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let without = |is_here: &dyn Fn(usize) -> bool| {
            let missing = (0..self.size).filter(|rank| !is_here(*rank));
            missing.collect::<Vec<_>>()
        };
        let absent = without(&|rank| self.places.has_joined(rank));
        match self.phase {
            HubPhase::Gathering if !absent.is_empty() => absent,
            HubPhase::Gathering => without(&|rank| self.placed.contains(rank)),
            _ => without(&|rank| self.ready.contains(rank)),
        }
    }

    pub(crate) fn is_gathering(&self) -> bool {
        self.phase == HubPhase::Gathering
    }

    /// The other ranks that are in the job.
    pub(crate) fn others(&self) -> Vec<usize> {
        (1..self.size).filter(|rank| !self.gone[*rank]).collect()
    }

    /// Whether ranks have still to find another parent, or to hear what they have missed.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty() || self.heard < self.welcomed
    }

    fn is_here(&self, rank: usize) -> bool {
        !self.gone[rank] && !self.leaving.contains_key(&(rank as u32))
    }

    /// Whether all others have ended.
    pub(crate) fn is_deserted(&self) -> bool {
        self.gone.iter().skip(1).all(|gone| *gone)
    }

    /// The number of the last message.
    pub(crate) fn last(&self) -> u64 {
        self.log.last()
    }

    /// How many messages are kept for ranks that may have missed them.
    #[cfg(test)]
    pub(crate) fn log_len(&self) -> usize {
        self.log.len()
    }

    /// What rank 0's branch passes on now.
    pub(crate) fn take_down(&mut self, now: Instant) -> Vec<Arc<Passed>> {
        if self.tells_at().is_some_and(|at| now >= at) {
            self.tell_departed();
        }
        match std::mem::replace(&mut self.can_wait, true) {
            true => Vec::new(),
            false => std::mem::take(&mut self.out),
        }
    }

    fn send(&mut self, to: To, message: Message) {
        self.out.push(self.log.add(to, message));
        self.can_wait = false;
    }

    fn send_to(&mut self, rank: usize, message: Message) {
        self.send(To::One(rank as u32), message);
    }

    /// Sends a message that the receiver needs only when the next one comes.
    fn send_at_leisure(&mut self, to: usize, message: Message) {
        let can_wait = self.can_wait;
        self.send_to(to, message);
        self.can_wait = can_wait;
    }

    /// Ends the rendezvous for all ranks.
    pub(crate) fn abort(&mut self, reason: &str) {
        if self.phase == HubPhase::Aborted {
            return;
        }
        self.phase = HubPhase::Aborted;
        let reason = reason.to_owned();
        let joined = (1..self.size).filter(|rank| self.places.has_joined(*rank));
        for rank in joined {
            let reason = reason.clone();
            self.answers.push((rank as u32, Hop::Abort { reason }));
        }
        self.send(To::All, Message::Abort { reason });
    }

    /// Notes that the others are to be told that a rank has left, if it has.
    pub(crate) fn depart(&mut self, rank: usize, now: Instant) {
        if self.leaving.remove(&(rank as u32)).is_some() {
            self.gone[rank] = true;
            self.departed.push(rank as u32);
            self.departed_since.get_or_insert(now);
        }
    }

    /// When the others are told which ranks have left.
    fn tells_at(&self) -> Option<Instant> {
        let many = self.size.div_ceil(GATHERS_FOR) as u32;
        let gathers = HOLD.min(GATHERS.saturating_mul(many));
        self.departed_since.map(|since| since + gathers)
    }

    /// Tells the others which ranks have left.
    fn tell_departed(&mut self) {
        self.departed_since = None;
        let ranks = std::mem::take(&mut self.departed);
        if ranks.is_empty() {
            return;
        }
        let gone = ranks.clone();
        self.send(To::All, Message::Left { ranks });
        for rank in gone {
            self.ends_calls(rank as usize, "it has left the job");
        }
    }

    /// Notes that `rank` has ended without saying so.
    fn lose(&mut self, rank: usize, reason: &str) {
        self.depart(rank, self.now);
        self.orphans.remove(&(rank as u32));
        if std::mem::replace(&mut self.gone[rank], true) {
            return;
        }
        match self.phase {
            HubPhase::Running => {
                let lost = Message::Lost {
                    rank: rank as u32,
                    reason: reason.to_owned(),
                    first: None,
                };
                self.send(To::All, lost);
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

    /// Handles what has come up to rank 0.
    pub(crate) fn hear(&mut self, up: Up, now: Instant) {
        self.now = now;
        for item in up.items {
            match Arc::unwrap_or_clone(item) {
                Item::Ready { ranks } => {
                    if self.phase == HubPhase::Opening && ranks.is_within(self.size) {
                        self.ready.unite(&ranks);
                        if self.ready.len() == self.size {
                            self.phase = HubPhase::Running;
                            self.send(To::All, Message::Go);
                        }
                    }
                }
                Item::Votes { round, tally } => {
                    if self.phase == HubPhase::Running
                        && let Err(error) = self.hear_votes(round, tally)
                        && error.rank < self.size
                    {
                        self.lose(error.rank, &error.to_string());
                    }
                }
                Item::Said { from, seq, message } => {
                    let from = from as usize;
                    let said = self.said.get(from).copied();
                    // What was said again is known. What is missing belongs to a call that has failed.
                    if said.is_some_and(|said| seq > said) {
                        self.said[from] = seq;
                        self.receive(from, seq, message, now);
                    }
                }
            }
        }
        self.answer_asking(now);
    }

    /// All ranks in the tree have heard the messages up to this number.
    pub(crate) fn all_heard(&mut self, heard: u64) {
        self.heard = heard;
        let orphans = self.orphans.values().map(|orphan| orphan.heard);
        self.log.forget(orphans.chain([heard]).min().unwrap_or(0));
    }

    /// Handles a message of rank `from`.
    fn receive(&mut self, from: usize, seq: u64, message: Message, now: Instant) {
        let is_heard = matches!(
            message,
            Message::Notify { .. }
                | Message::Withdrawn { .. }
                | Message::Attached { .. }
                | Message::Gone { .. }
        );
        // While ranks join, the start answers all of it.
        if is_heard && matches!(self.phase, HubPhase::Opening | HubPhase::Running) {
            self.send_at_leisure(from, Message::Heard { seq });
        }
        match message {
            Message::Attached { rank, heard } => {
                return self.attached(from as u32, seq, rank, heard);
            }
            Message::Gone {
                rank,
                reason,
                heard,
            } => return self.end_of(from as u32, rank, &reason, heard, now),
            _ => {}
        }
        // Rank 0 may have left, and then fail, so that it serves no other rank any more.
        let fails = from == 0 && matches!(message, Message::Fail { .. });
        if self.gone[from] && !fails {
            return;
        }
        let genuine = |rank: u32| rank as usize == from;
        match (self.phase, &message) {
            (
                HubPhase::Running,
                Message::Exchange { .. }
                | Message::Letter { .. }
                | Message::Confer { .. }
                | Message::Found { .. }
                | Message::Withdrawn { .. },
            ) => {
                if self.is_here(from)
                    && let Err(error) = self.hear_call(from, message)
                {
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
                    None => self.send(To::Others(*rank), message),
                    Some(to) => {
                        let here = |rank: &u32| {
                            (*rank as usize) < self.size && self.is_here(*rank as usize)
                        };
                        let to: Vec<_> = to.iter().copied().filter(here).collect();
                        self.send(To::Ranks(to), message);
                    }
                }
            }
            (HubPhase::Running, Message::Leave) if self.is_here(from) => {
                self.send_to(from, Message::Bye);
                self.leaving.insert(from as u32, now + HOLD);
            }
            (_, Message::Fail { reason, first }) => {
                self.send_to(from, Message::Bye);
                match self.phase {
                    HubPhase::Running => {
                        self.gone[from] = true;
                        self.leaving.remove(&(from as u32));
                        let lost = Message::Lost {
                            rank: from as u32,
                            reason: reason.clone(),
                            first: *first,
                        };
                        self.send(To::Others(from as u32), lost);
                        self.ends_calls(from, reason);
                    }
                    _ => self.abort(reason),
                }
            }
            (HubPhase::Aborted, _) => {}
            (_, _) => self.lose(from, "it sent a message that is not allowed at this point"),
        }
    }

    /// Gives up orphans that do not come, and tells the others which ranks have left.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.now = now;
        let left = self.leaving.iter().filter(|(_, until)| now >= **until);
        let left: Vec<_> = left.map(|(rank, _)| *rank).collect();
        left.into_iter()
            .for_each(|rank| self.depart(rank as usize, now));
        let late = self
            .orphans
            .iter()
            .filter(|(_, orphan)| now >= orphan.until);
        let late: Vec<_> = late.map(|(rank, _)| *rank).collect();
        for rank in late {
            let parent =
                "the rank that connected it to the others has ended, and it did not come again";
            self.lose(rank as usize, parent);
        }
        self.answer_asking(now);
    }

    /// When [`Hub::tick`] has to be called next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let orphans = self.orphans.values().map(|orphan| orphan.until);
        let orphans = orphans.chain(self.tells_at());
        let asking = self.asking.values().copied();
        let leaving = self.leaving.values().copied();
        orphans.chain(asking).chain(leaving).min()
    }
}

mod calls;
mod gathered;
mod log;
mod places;
mod tree;

use gathered::Gathered;
use log::Log;
use places::Places;
#[cfg(test)]
pub(crate) mod tests;
