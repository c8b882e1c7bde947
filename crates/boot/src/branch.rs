//! A rank's place in the tree: what it passes up to rank 0, and down to the ranks below it.
//!
//! # Model
//!
//! The ranks form a tree, with rank 0 at its root. What a rank says goes up to the hub, which decides, and what the hub
//! says comes down. This is a state machine without sockets or clocks. Rank 0 has one, too; its parent is the hub.
//!
//! - **Up.** A rank numbers what it says, and keeps it until it is answered ([`Kept`]). On the way up, votes about calls
//!   of all ranks wait for those of the other ranks below, and are merged ([`Pile`]). Everything else goes on at once.
//! - **Down.** The hub numbers its messages. Each rank knows up to which number it has them, and up to which number all
//!   ranks below it have. It tells its parent, so that the hub need not keep them longer.
//!
//! # Failure
//!
//! A rank whose parent ends finds another one. What was on its way up may be lost, so then all ranks below say again
//! what has not been answered; the hub ignores what it has heard. Until a child has heard of this (its *epoch*), what it
//! sends is dropped. So the hub hears what a rank says in order, and misses nothing but what a failed call has made needless.
//!
//! What was on its way down may be lost, too: a rank has often heard more than those below it. So a new parent is told at
//! once how much all of them have heard, and a rank that has lost a child counts it and the ranks below it until the hub
//! knows of them. Otherwise the hub would forget what they need when they find new parents. The hub sends it again when the new parent tells it who has come
//! ([`Message::Attached`]), and then that the child has all of it ([`Message::Welcome`]). Before that, the child gets
//! nothing else. Which ranks are below which child is learnt from the hub alone ([`Message::Joined`]): it knows the order
//! in which things have happened, and what is said again on its way up may be out of date.

use crate::hop::{Down, Hop, Item, Passed, To, Up, bundles};
use crate::rounds::is_of_all;
use crate::set::RankSet;
use crate::tally::Tally;
use crate::votes::{Call, Kind};
use crate::wire::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use pile::Pile;

/// After how many bytes from its parent a rank tells how much it has heard.
const MOST_UNTOLD: usize = 4 << 20;

/// What no correct rank below this one says.
#[derive(Debug, thiserror::Error)]
#[error("it sent a message that is not allowed at this point")]
pub(crate) struct Odd;

/// Something that this rank has said, and that has not been answered.
#[derive(Debug)]
struct Kept {
    item: Arc<Item>,
    until: Until,
}

/// What answers something that a rank has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Decided(u64),
    Founded,
    Go,
    Bye,
    Heard,
}

#[derive(Debug)]
struct Child {
    /// The child and all ranks below it have heard the messages up to this number.
    heard: u64,
    /// The child itself had heard the messages up to this number when it came.
    came: u64,
    /// The `seq` of the [`Message::Attached`] about this child, until the child has been sent what it had missed.
    welcome: Option<u64>,
    /// How often the child was told to say everything again, and whether that has still to be sent.
    epoch: u32,
    is_again: bool,
    out: Vec<Arc<Passed>>,
}

impl Child {
    /// Passes a message on. Before a child has been sent what it had missed, it gets nothing else.
    fn pass(&mut self, item: Arc<Passed>) {
        if self.welcome.is_none() {
            self.out.push(item);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Branch {
    me: u32,
    /// Whether there is a parent. Rank 0 always has the hub.
    has_parent: bool,
    epoch: u32,
    /// The number of the last thing that this rank has said.
    said: u64,
    kept: VecDeque<Kept>,
    /// This rank has been sent all that is for it and the ranks below it, up to this number.
    heard: u64,
    /// Bytes from the parent since it was told how much this rank has heard, and whether it waits to be told.
    untold: usize,
    is_asked: bool,
    children: BTreeMap<u32, Child>,
    /// What children that have ended, and those below them, had heard, by the `seq` of the [`Message::Gone`] that the hub
    /// has not answered.
    ended: BTreeMap<u64, u64>,
    /// For each rank below this one: the child that leads to it.
    routes: BTreeMap<u32, u32>,
    pile: Pile,
    /// What goes up next.
    out: Vec<Arc<Item>>,
    /// The messages for this rank.
    pub(crate) own: VecDeque<Message>,
    /// Children that were given up by the hub.
    pub(crate) given_up: Vec<(u32, String)>,
}

impl Branch {
    pub(crate) fn new(me: u32) -> Self {
        Self {
            me,
            has_parent: me == 0,
            epoch: 0,
            said: 0,
            kept: VecDeque::new(),
            heard: 0,
            untold: 0,
            is_asked: false,
            children: BTreeMap::new(),
            ended: BTreeMap::new(),
            routes: BTreeMap::new(),
            pile: Pile::default(),
            out: Vec::new(),
            own: VecDeque::new(),
            given_up: Vec::new(),
        }
    }

    /// The ranks of the children, in ascending order.
    pub(crate) fn children(&self) -> impl Iterator<Item = u32> {
        self.children.keys().copied()
    }

    pub(crate) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// Up to which number this rank and all below it have heard. This counts ranks whose parent has ended below this one,
    /// until the hub knows that they look for another one.
    pub(crate) fn all_heard(&self) -> u64 {
        let below = self.children.values().map(|child| child.heard);
        let below = below.chain(self.ended.values().copied());
        below.min().map_or(self.heard, |low| low.min(self.heard))
    }

    /// Says something to the hub.
    pub(crate) fn say(&mut self, message: Message, now: Instant) {
        let me = self.me;
        let (item, until) = match message {
            Message::Ready => {
                let ranks = RankSet::of(me);
                (Item::Ready { ranks }, Until::Go)
            }
            Message::Confer { round, label, vote } if is_of_all(round) => {
                let call = Call::new(Kind::Confer, label);
                let tally = Tally::of(me, call, *vote);
                (Item::Votes { round, tally }, Until::Decided(round))
            }
            message => {
                self.said += 1;
                let seq = self.said;
                let until = match &message {
                    Message::Confer { round, .. }
                    | Message::Exchange { round, .. }
                    | Message::Letter { round, .. } => Until::Decided(*round),
                    Message::Found { .. } => Until::Founded,
                    Message::Leave | Message::Fail { .. } => Until::Bye,
                    _ => Until::Heard,
                };
                let item = Item::Said {
                    from: me,
                    seq,
                    message,
                };
                (item, until)
            }
        };
        let item = Arc::new(item);
        self.kept.push_back(Kept {
            item: Arc::clone(&item),
            until,
        });
        self.add(item, now);
    }

    /// Adds something to what goes up. It is dropped while there is no parent.
    fn add(&mut self, item: Arc<Item>, now: Instant) {
        if !self.has_parent {
            return;
        }
        match pile::may_wait(&item) {
            true => self.pile.add(item, now, &mut self.out),
            false => {
                self.pile.take(&mut self.out);
                self.out.push(item);
            }
        }
    }

    /// What this rank says to a new parent.
    pub(crate) fn attachment(&self) -> Hop {
        Hop::Attach {
            heard: self.heard,
            all_heard: self.all_heard(),
        }
    }

    /// A child has come, with what it says in [`Hop::Attach`].
    pub(crate) fn attach(
        &mut self,
        rank: u32,
        heard: u64,
        all_heard: u64,
        now: Instant,
    ) -> Result<(), Odd> {
        if self.children.contains_key(&rank) || rank == self.me {
            return Err(Odd);
        }
        self.routes.insert(rank, rank);
        self.say(Message::Attached { rank, heard }, now);
        // Who has heard nothing has missed nothing.
        let welcome = (heard > 0).then_some(self.said);
        let child = Child {
            heard: all_heard,
            came: heard,
            welcome,
            epoch: 0,
            is_again: false,
            out: Vec::new(),
        };
        self.children.insert(rank, child);
        Ok(())
    }

    /// The connection to a child has ended.
    pub(crate) fn lose_child(&mut self, rank: u32, reason: &str, now: Instant) {
        let Some(child) = self.children.remove(&rank) else {
            return;
        };
        self.routes.retain(|_, child| *child != rank);
        let (reason, heard) = (reason.to_owned(), child.heard);
        let gone = Message::Gone {
            rank,
            reason,
            heard,
        };
        self.say(gone, now);
        self.ended.insert(self.said, heard);
    }

    /// The parent has ended. What goes up is lost.
    pub(crate) fn lose_parent(&mut self) {
        self.has_parent = false;
        self.pile = Pile::default();
        self.out.clear();
    }

    /// Notes that there is a new parent, which was told how much this rank has heard. All ranks below say everything
    /// again.
    pub(crate) fn find_parent(&mut self, now: Instant) {
        self.has_parent = true;
        self.epoch = 0;
        self.repeat(now);
    }

    /// Says everything again that has not been answered, and makes the ranks below do so.
    pub(crate) fn repeat(&mut self, now: Instant) {
        self.pile = Pile::default();
        self.out.clear();
        let kept: Vec<_> = self
            .kept
            .iter()
            .map(|kept| Arc::clone(&kept.item))
            .collect();
        for item in kept {
            self.add(item, now);
        }
        // What the hub has sent to children that had just come may be lost.
        let strangers = self.children.iter();
        let strangers = strangers.filter(|(_, child)| child.welcome.is_some());
        let strangers: Vec<_> = strangers.map(|(rank, child)| (*rank, child.came)).collect();
        for (rank, heard) in strangers {
            self.say(Message::Attached { rank, heard }, now);
            if let Some(child) = self.children.get_mut(&rank) {
                child.welcome = Some(self.said);
            }
        }
        for child in self.children.values_mut() {
            child.epoch += 1;
            child.is_again = true;
        }
    }

    /// The parent asks for everything again.
    pub(crate) fn again(&mut self, now: Instant) {
        self.epoch += 1;
        self.repeat(now);
    }

    /// A child says something.
    pub(crate) fn hear_up(&mut self, child: u32, up: Up, now: Instant) -> Result<(), Odd> {
        let state = self.children.get_mut(&child).ok_or(Odd)?;
        if up.epoch != state.epoch || !self.has_parent {
            return Ok(());
        }
        // This may be less than before: a rank that has found a place below the child may have heard less.
        state.heard = up.heard;
        for item in up.items {
            // While the ranks join, they come one after the other. Later the hub tells where they are.
            if let Item::Said { message, .. } = &*item
                && let Message::Attached { rank, heard: 0 } = message
                && *rank != self.me
            {
                self.routes.insert(*rank, child);
            }
            self.add(item, now);
        }
        Ok(())
    }

    /// Up to which number a child has everything, as soon as what waits for it is sent. 0 if it has still to be sent what
    /// it had missed.
    pub(crate) fn upto(&self, child: u32) -> u64 {
        let child = self.children.get(&child);
        match child.is_some_and(|child| child.welcome.is_none()) {
            true => self.heard,
            false => 0,
        }
    }

    /// The parent says something.
    pub(crate) fn hear_down(&mut self, down: Down) {
        for item in down.items {
            self.untold += item.weight();
            self.pass(item);
        }
        self.has_all(down.upto);
    }

    /// The parent has sent everything up to this number.
    fn has_all(&mut self, upto: u64) {
        self.heard = self.heard.max(upto);
    }

    /// The parent sends a heartbeat, and has sent everything up to this number. It is answered even if there is nothing
    /// to say.
    pub(crate) fn hear_beat(&mut self, upto: u64) {
        self.has_all(upto);
        self.is_asked = true;
    }

    fn pass(&mut self, mut item: Arc<Passed>) {
        if let Some(top) = item.below {
            if top != self.me {
                if let Some(child) = self.route(top) {
                    child.out.push(item);
                }
                return;
            }
            item = Arc::new(Passed {
                below: None,
                ..Passed::clone(&item)
            });
        }
        if item.number <= self.heard {
            return;
        }
        self.heard = item.number;
        let mut is_mine = true;
        match &item.to {
            To::All => self.pass_to_all(&item),
            To::Others(rank) => {
                is_mine = *rank != self.me;
                self.pass_to_all(&item);
            }
            To::One(rank) => {
                is_mine = *rank == self.me;
                self.note_routes(*rank, &item.message);
                if let Some(child) = self.route(*rank) {
                    child.pass(Arc::clone(&item));
                }
            }
            To::Ranks(ranks) => {
                is_mine = ranks.contains(&self.me);
                let mut parts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
                for rank in ranks {
                    if let Some(child) = self.routes.get(rank) {
                        parts.entry(*child).or_default().push(*rank);
                    }
                }
                for (child, part) in parts {
                    let item = match part.len() == ranks.len() {
                        true => Arc::clone(&item),
                        false => Arc::new(Passed {
                            to: To::Ranks(part),
                            ..Passed::clone(&item)
                        }),
                    };
                    if let Some(child) = self.children.get_mut(&child) {
                        child.pass(item);
                    }
                }
            }
        }
        if is_mine {
            self.deliver(&item.message);
        }
        if let Message::Lost { rank, reason, .. } = &item.message
            && self.children.contains_key(rank)
        {
            self.given_up.push((*rank, reason.clone()));
        }
    }

    fn pass_to_all(&mut self, item: &Arc<Passed>) {
        for child in self.children.values_mut() {
            child.pass(Arc::clone(item));
        }
    }

    /// Notes what the hub tells a parent about the ranks below it. They are below all ranks above that parent, too.
    fn note_routes(&mut self, parent: u32, message: &Message) {
        let to_parent = self.routes.get(&parent).copied();
        match message {
            Message::Joined { child, below } => {
                let child = match parent == self.me {
                    true => Some(*child).filter(|child| self.children.contains_key(child)),
                    false => to_parent,
                };
                if let Some(child) = child {
                    let below = below.iter().filter(|rank| **rank != self.me);
                    self.routes.extend(below.map(|rank| (*rank, child)));
                }
            }
            Message::Parted { below } if parent != self.me => {
                for rank in below {
                    if to_parent.is_some() && self.routes.get(rank).copied() == to_parent {
                        self.routes.remove(rank);
                    }
                }
            }
            _ => {}
        }
    }

    fn route(&mut self, rank: u32) -> Option<&mut Child> {
        self.children.get_mut(self.routes.get(&rank)?)
    }

    /// Takes a message for this rank, and forgets what it answers.
    fn deliver(&mut self, message: &Message) {
        match message {
            Message::Heard { seq } => {
                let seq = *seq;
                self.kept.retain(
                    |kept| !matches!(&*kept.item, Item::Said { seq: of, .. } if *of <= seq),
                );
                self.ended.retain(|of, _| *of > seq);
                return;
            }
            Message::Joined { .. } | Message::Parted { .. } => return,
            Message::Welcome { child, seq } => {
                if let Some(child) = self.children.get_mut(child)
                    && child.welcome == Some(*seq)
                {
                    child.welcome = None;
                }
                return;
            }
            Message::Decided { round, .. } => self.answered(Until::Decided(*round)),
            // All have come: what was said about that was heard.
            Message::Start { .. } => {
                self.answered(Until::Heard);
                self.ended.clear();
            }
            Message::Founded { .. } => self.answered(Until::Founded),
            Message::Go => self.answered(Until::Go),
            Message::Bye => {
                // A rank that has left may fail after that. Each of the two has an answer of its own.
                let first = self.kept.iter().position(|kept| kept.until == Until::Bye);
                if let Some(first) = first {
                    self.kept.remove(first);
                }
            }
            _ => {}
        }
        self.own.push_back(message.clone());
    }

    fn answered(&mut self, until: Until) {
        self.kept.retain(|kept| kept.until != until);
    }

    /// Takes what goes up now.
    pub(crate) fn take_up(&mut self, now: Instant) -> Vec<Up> {
        if !self.has_parent {
            return Vec::new();
        }
        // The ranks below, and this one.
        let all = self.routes.len() + 1;
        self.pile.take_due(all, now, &mut self.out);
        let items = std::mem::take(&mut self.out);
        let mut bundles = bundles(items, |item| item.weight());
        if bundles.is_empty() && (self.is_asked || self.untold > MOST_UNTOLD) {
            bundles.push(Vec::new());
        }
        if !bundles.is_empty() {
            (self.untold, self.is_asked) = (0, false);
        }
        let (epoch, heard) = (self.epoch, self.all_heard());
        let ups = bundles.into_iter().map(|items| Up {
            epoch,
            heard,
            items,
        });
        ups.collect()
    }

    /// Whether something waits to be sent to this child.
    pub(crate) fn wants_down(&self, child: u32) -> bool {
        let child = self.children.get(&child);
        child.is_some_and(|child| child.is_again || !child.out.is_empty())
    }

    /// Takes what goes to a child now. Returns whether the child is first told to say everything again, the messages, and
    /// up to which number the child has everything with them.
    pub(crate) fn take_down(&mut self, child: u32) -> (bool, Vec<Arc<Passed>>, u64) {
        let upto = self.upto(child);
        match self.children.get_mut(&child) {
            Some(child) => (
                std::mem::take(&mut child.is_again),
                std::mem::take(&mut child.out),
                upto,
            ),
            None => (false, Vec::new(), 0),
        }
    }

    /// When [`Branch::take_up`] has to be called next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        self.pile.until().filter(|_| self.has_parent)
    }
}

/// The hops that carry messages to a child, which has everything up to the number `upto` with the last of them.
pub(crate) fn downs(items: Vec<Arc<Passed>>, upto: u64) -> Vec<Hop> {
    let mut bundles = bundles(items, |item| item.weight());
    let last = bundles.pop();
    let earlier = bundles.into_iter().map(|items| (items, 0));
    let all = earlier.chain(last.map(|items| (items, upto)));
    all.map(|(items, upto)| Hop::Down(Down { upto, items }))
        .collect()
}

mod pile;
#[cfg(test)]
mod tests;
