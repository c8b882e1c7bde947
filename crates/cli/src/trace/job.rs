//! The ranks of a job together: one time, and the signal that ended each wait.
//!
//! # Model
//!
//! A signal is a leg that tells another rank something. A wait and its signal have the same window, ranks, operation,
//! and number of the epoch. The stamps give the numbers of waits. A signal gets its number from the waits around it on
//! its own rank:
//!
//! - A complete waits for the post of its own epoch, or the last call before it on its stream that waits for a post
//!   does.
//! - A post is followed by the wait for the same epoch, or for the epoch before if the origins had an exposure from the
//!   beginning.
//! - All signals and waits of one execution of a barrier have one number.
//!
//! So the numbers are right even if stamps were dropped before.

use std::collections::{BTreeMap, HashMap};

use tidegate_core::observe::{Declared, Operation, WindowId};

use super::clocks::{Clocks, Order, of_rounds};
use super::rank::{Done, Item, LegRef, Rank, Time, Work};

/// A job.
pub(super) struct Job {
    /// The ranks whose files there are, in ascending order.
    pub(super) ranks: Vec<Rank>,
    /// How many ranks the job has.
    pub(super) size: usize,
    /// The names of the hosts.
    pub(super) hosts: Vec<String>,
    /// How far times of two hosts may be off. `None` if there is one host.
    pub(super) clock_error: Option<Time>,
    /// By how much the bounds of the clocks contradict each other.
    pub(super) contradiction: Option<Time>,
    /// How many hosts cannot be compared with the first.
    pub(super) unknown_hosts: usize,
    /// When the last rank left.
    pub(super) ended: Time,
    /// How many kernels and legs there are.
    pub(super) pieces: usize,
}

/// What a signal is for: window, operation, from, to, and epoch.
type Key = (Option<WindowId>, Operation, u32, u32, u64);

/// What a rank has done towards a peer with a window, in the order of its streams.
enum Act {
    Post(LegRef),
    Wait(u64),
}

impl Job {
    /// Puts ranks together.
    pub(super) fn new(mut ranks: Vec<Rank>) -> Self {
        ranks.sort_by_key(|rank| rank.joined.rank);
        let size = ranks.iter().map(|rank| rank.joined.ranks).max();
        let mut job = Job {
            size: size.unwrap_or(0) as usize,
            ranks,
            hosts: Vec::new(),
            clock_error: None,
            contradiction: None,
            unknown_hosts: 0,
            ended: 0,
            pieces: 0,
        };
        job.pieces = job.items().count() + job.legs().count();
        job.join();
        job.compare_clocks();
        job
    }

    pub(super) fn item(&self, at: LegRef) -> &Item {
        &self.ranks[at.rank].streams[at.stream].items[at.item]
    }

    /// A leg, and the batch that it is of.
    pub(super) fn leg(&self, at: LegRef) -> (&Declared, &Done) {
        match &self.item(at).work {
            Work::Batch(batch, legs) => (batch, &legs[at.leg]),
            _ => unreachable!("a kernel has no legs"),
        }
    }

    /// All items, each with its rank, stream and index.
    pub(super) fn items(&self) -> impl Iterator<Item = ((usize, usize, usize), &Item)> {
        self.ranks.iter().enumerate().flat_map(|(rank, of)| {
            of.streams.iter().enumerate().flat_map(move |(stream, of)| {
                let items = of.items.iter().enumerate();
                items.map(move |(item, of)| ((rank, stream, item), of))
            })
        })
    }

    /// All legs.
    pub(super) fn legs(&self) -> impl Iterator<Item = (LegRef, &Declared, &Done)> {
        let ranks = 0..self.ranks.len();
        ranks.flat_map(|rank| legs(&self.ranks[rank], rank))
    }

    /// The number of the rank with this index.
    pub(super) fn number(&self, rank: usize) -> u32 {
        self.ranks[rank].joined.rank
    }

    /// The index of the rank with this number.
    pub(super) fn index(&self, number: u32) -> Option<usize> {
        let by = |rank: &Rank| rank.joined.rank;
        self.ranks.binary_search_by_key(&number, by).ok()
    }

    /// How a window is called on a rank.
    pub(super) fn window(&self, rank: usize, window: Option<WindowId>) -> String {
        let known = window.and_then(|window| self.ranks[rank].windows.get(&window));
        match known {
            Some(window) if &*window.what == "window" => window.name.to_string(),
            Some(window) => format!("{} {}", window.what, window.name),
            None => String::new(),
        }
    }

    /// The ranks whose files are missing.
    pub(super) fn missing(&self) -> Vec<u32> {
        let numbers = 0..self.size as u32;
        numbers
            .filter(|number| self.index(*number).is_none())
            .collect()
    }

    /// Joins waits with signals.
    fn join(&mut self) {
        let mut signals: HashMap<Key, LegRef> = HashMap::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            signals.extend(signals_of(rank, index));
        }
        for rank in &mut self.ranks {
            let number = rank.joined.rank;
            let items = rank.streams.iter_mut().flat_map(|stream| &mut stream.items);
            for item in items {
                let Work::Batch(batch, legs) = &mut item.work else {
                    continue;
                };
                for leg in legs {
                    if let Some(awaits) = batch.parts[leg.part].awaits {
                        let (window, operation) = (awaits.window, awaits.operation);
                        let key = (window, operation, awaits.peer, number, leg.epoch);
                        leg.signal = signals.get(&key).copied();
                    }
                }
            }
        }
    }

    /// Brings all times to one clock, and counts them from the start of the job.
    fn compare_clocks(&mut self) {
        let mut of_rank = self.group(|rank| rank.joined.host.clone());
        let mut orders = rounds(&self.ranks, &of_rank);
        let impossible =
            |order: &Order| order.before.0 == order.after.0 && order.before.1 > order.after.1;
        if orders.iter().any(impossible) {
            // Two machines have the same name.
            of_rank =
                self.group(|rank| format!("{} (node {})", rank.joined.host, rank.joined.node));
            orders = rounds(&self.ranks, &of_rank);
        }
        let signalled = self.legs().filter_map(|(at, _, leg)| {
            let signal = leg.signal?;
            let (from, to) = (of_rank[signal.rank], of_rank[at.rank]);
            let moved = self.leg(signal).1.moved;
            (from != to).then_some(Order {
                before: (from, moved),
                after: (to, leg.satisfied),
            })
        });
        orders.extend(signalled);
        let mut spans = vec![(Time::MAX, Time::MIN); self.hosts.len()];
        for (rank, host) in self.ranks.iter().zip(&of_rank) {
            let span = &mut spans[*host];
            *span = (span.0.min(rank.begun), span.1.max(rank.ended()));
        }
        let clocks = Clocks::new(&spans, &orders);
        if self.hosts.len() > 1 {
            self.clock_error = Some(clocks.error);
            self.contradiction = clocks.contradiction;
            self.unknown_hosts = clocks.unknown;
        }
        let ranks = self.ranks.iter().zip(&of_rank);
        let begins = ranks.map(|(rank, host)| clocks.common(*host, rank.begun));
        let start = begins.min().unwrap_or(0);
        for (rank, host) in self.ranks.iter_mut().zip(&of_rank) {
            rank.shift(|time| clocks.common(*host, time) - start);
        }
        self.ended = self.ranks.iter().map(Rank::ended).max().unwrap_or(0);
    }

    /// The host of each rank, where ranks of one host have the same `name`.
    fn group(&mut self, name: impl Fn(&Rank) -> String) -> Vec<usize> {
        let mut known = BTreeMap::new();
        self.hosts.clear();
        let of = |rank: &Rank| {
            let name = name(rank);
            *known.entry(name.clone()).or_insert_with(|| {
                self.hosts.push(name);
                self.hosts.len() - 1
            })
        };
        self.ranks.iter().map(of).collect()
    }
}

/// What the rounds say, where `of_rank` has the host of each rank.
fn rounds(ranks: &[Rank], of_rank: &[usize]) -> Vec<Order> {
    let rounds = ranks.iter().zip(of_rank);
    let rounds: Vec<_> = rounds
        .map(|(rank, host)| (*host, &rank.joined.rounds[..]))
        .collect();
    of_rounds(&rounds)
}

/// All legs of a rank.
fn legs(rank: &Rank, index: usize) -> impl Iterator<Item = (LegRef, &Declared, &Done)> {
    rank.streams
        .iter()
        .enumerate()
        .flat_map(move |(stream, s)| {
            s.items.iter().enumerate().flat_map(move |(item, i)| {
                let (batch, legs) = match &i.work {
                    Work::Batch(batch, legs) => (Some(&**batch), &legs[..]),
                    _ => (None, &[][..]),
                };
                legs.iter().enumerate().filter_map(move |(leg, done)| {
                    let at = LegRef {
                        rank: index,
                        stream,
                        item,
                        leg,
                    };
                    Some((at, batch?, done))
                })
            })
        })
}

/// What a rank has done with each window and peer, each with the time.
type Acts = HashMap<(Option<WindowId>, u32), Vec<(Time, Act)>>;

/// The signals of a rank, with their epochs.
fn signals_of(rank: &Rank, index: usize) -> Vec<(Key, LegRef)> {
    let number = rank.joined.rank;
    let mut signals = Vec::new();
    let mut acts = Acts::new();
    // How many signals had no wait beside them that gives their number.
    let mut counts: HashMap<(Option<WindowId>, Operation, u32), u64> = HashMap::new();
    // The epoch of the last post that each stream has awaited.
    let mut posted: HashMap<(usize, Option<WindowId>, u32), u64> = HashMap::new();
    for (at, batch, leg) in legs(rank, index) {
        let part = Rank::part(batch, leg);
        if let Some(awaits) = part.awaits
            && awaits.operation == Operation::Post
        {
            posted.insert((at.stream, awaits.window, awaits.peer), leg.epoch);
        }
        let item = &rank.streams[at.stream].items[at.item];
        let Work::Batch(_, all) = &item.work else {
            continue;
        };
        for tells in &part.tells {
            let key = (tells.window, tells.operation, tells.peer);
            // A wait of the same execution, in this lane or in any.
            let beside = |operation: Operation, any: bool| {
                let is = |other: &&Done| {
                    let there = Rank::part(batch, other);
                    let awaits = there.awaits.is_some_and(|awaits| {
                        awaits.operation == operation
                            && awaits.window == tells.window
                            && (any || awaits.peer == tells.peer)
                    });
                    awaits && (any || there.lane == part.lane)
                };
                all.iter().find(is).map(|leg| leg.epoch)
            };
            let epoch = match tells.operation {
                Operation::Post => {
                    let acts = acts.entry((tells.window, tells.peer)).or_default();
                    acts.push((item.begun, Act::Post(at)));
                    continue;
                }
                Operation::Arrive => beside(Operation::Arrive, true),
                Operation::Pull => beside(Operation::Complete, false),
                _ => {
                    let before = (at.stream, tells.window, tells.peer);
                    beside(Operation::Post, false).or_else(|| posted.get(&before).copied())
                }
            };
            let count = counts.entry(key).or_default();
            let epoch = epoch.unwrap_or(*count);
            *count = epoch.saturating_add(1);
            let (window, operation, peer) = key;
            signals.push(((window, operation, number, peer, epoch), at));
        }
        if let Some(awaits) = part.awaits
            && awaits.operation == Operation::Complete
        {
            let acts = acts.entry((awaits.window, awaits.peer)).or_default();
            acts.push((item.begun, Act::Wait(leg.epoch)));
        }
    }
    for ((window, peer), mut acts) in acts {
        // In one batch, the post comes first.
        acts.sort_by_key(|(begun, act)| (*begun, matches!(act, Act::Wait(_))));
        let known = window.and_then(|window| rank.windows.get(&window));
        let ahead = known.map_or(0, |window| window.exposed);
        let last = acts.iter().rev().find_map(|(_, act)| match act {
            Act::Wait(epoch) => Some(epoch.saturating_add(1)),
            Act::Post(_) => None,
        });
        // Backwards, from the post behind the last wait.
        let mut next = match acts.last() {
            Some((_, Act::Post(_))) => match last {
                Some(last) => last,
                None => acts.len() as u64 - 1,
            },
            _ => 0,
        };
        for (_, act) in acts.iter().rev() {
            match act {
                Act::Wait(epoch) => next = *epoch,
                Act::Post(at) => {
                    let key = (
                        window,
                        Operation::Post,
                        number,
                        peer,
                        next.saturating_add(ahead),
                    );
                    signals.push((key, *at));
                    next = next.saturating_sub(1);
                }
            }
        }
    }
    signals
}
