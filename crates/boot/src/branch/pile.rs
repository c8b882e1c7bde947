//! What waits on its way up, until the same has come of all ranks below.

use crate::hop::{BUNDLE, Item, bundles};
use crate::rounds::is_of_all;
use crate::set::RankSet;
use crate::tally::Tally;
use crate::wire::Message;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a rank's message waits for those of other ranks. Ranks come to a call at different times, so this must not
/// add much.
pub(crate) const WAIT: Duration = Duration::from_millis(20);

/// Whether an item may wait for those of other ranks: it belongs to a call of all ranks, or to their start.
pub(super) fn may_wait(item: &Item) -> bool {
    matches!(item, Item::Ready { .. }) || round_of(item).is_some_and(is_of_all)
}

/// The round to which an item belongs.
fn round_of(item: &Item) -> Option<u64> {
    match item {
        Item::Votes { round, .. }
        | Item::Said {
            message: Message::Letter { round, .. } | Message::Exchange { round, .. },
            ..
        } => Some(*round),
        Item::Said { .. } | Item::Ready { .. } => None,
    }
}

#[derive(Debug, Default)]
pub(super) struct Pile {
    since: Option<Instant>,
    said: Vec<Arc<Item>>,
    bytes: usize,
    votes: Tally,
    ready: RankSet,
    /// The last round, and the ranks that have come to it, some of them before the pile was last taken.
    round: Option<u64>,
    came: RankSet,
}

impl Pile {
    /// Adds an item that may wait. If it belongs to another round than those before, they go up at once.
    pub(super) fn add(&mut self, item: Arc<Item>, now: Instant, out: &mut Vec<Arc<Item>>) {
        let round = round_of(&item);
        if round != self.round {
            self.take(out);
            (self.round, self.came) = (round, RankSet::default());
        }
        self.since.get_or_insert(now);
        match &*item {
            Item::Votes { tally, .. } => {
                self.came.unite(tally.come());
                self.votes.merge(tally.clone());
                return;
            }
            Item::Ready { ranks } => {
                self.came.unite(ranks);
                self.ready.unite(ranks);
                return;
            }
            Item::Said { from, message, .. } => {
                if let Message::Exchange { .. } = message {
                    self.came.insert(*from);
                }
            }
        }
        self.bytes += item.weight();
        self.said.push(item);
    }

    /// When everything goes up at the latest. `None`: nothing waits.
    pub(super) fn until(&self) -> Option<Instant> {
        self.since.map(|since| since + WAIT)
    }

    /// Takes what is due. If that is only because it is large, it takes full bundles, since the rest costs a message
    /// of its own.
    pub(super) fn take_due(&mut self, all: usize, now: Instant, out: &mut Vec<Arc<Item>>) {
        let Some(until) = self.until() else {
            return;
        };
        if now >= until || self.came.len() >= all {
            self.take(out);
        } else if self.bytes >= BUNDLE {
            let mut full = bundles(std::mem::take(&mut self.said), |item| item.weight());
            self.said = full.pop().unwrap_or_default();
            self.bytes = self.said.iter().map(|item| item.weight()).sum();
            out.extend(full.into_iter().flatten());
        }
    }

    /// Takes everything. Letters come before the votes of their writers.
    pub(super) fn take(&mut self, out: &mut Vec<Arc<Item>>) {
        self.since = None;
        self.bytes = 0;
        out.append(&mut self.said);
        let votes = std::mem::take(&mut self.votes);
        if let (Some(round), 1..) = (self.round, votes.count()) {
            let tally = votes;
            out.push(Arc::new(Item::Votes { round, tally }));
        }
        let ranks = std::mem::take(&mut self.ready);
        if !ranks.is_empty() {
            out.push(Arc::new(Item::Ready { ranks }));
        }
    }
}
