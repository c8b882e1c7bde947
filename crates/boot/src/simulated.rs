//! A job in a virtual network, with a virtual clock: the hub and the branches of up to 65,536 ranks, deaths at random
//! moments, and what is lost with them.
//!
//! Everything that a rank does follows from the seed. A hop takes some time, and hops of one connection keep their order.
//! If a rank dies, its neighbours notice it a little later. What it has sent and has not arrived is lost or not.
//!
//! The program of each rank opens windows: three calls each, with letters to both neighbours in the first one.

use crate::branch::Branch;
use crate::hop::Hop;
use crate::hub::{ARITY, Hub};
use crate::rounds::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

mod program;
mod service;
mod tests;

/// How long a rank may be an orphan.
const SILENCE: Duration = Duration::from_secs(10);
/// How many collective calls open a window.
const CALLS: u64 = 3;

/// Random numbers that follow from a seed (xorshift64*).
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end.max(1)
    }
}

/// What happens at a moment.
#[derive(Debug)]
enum Event {
    /// A hop arrives over a connection.
    Hop {
        link: u64,
        to: u32,
        hop: Hop,
    },
    /// A rank notices that a connection has ended.
    Closed {
        link: u64,
        at: u32,
    },
    /// A rank without a parent says something to rank 0, or hears its answer.
    Call {
        from: u32,
        hop: Hop,
    },
    Answer {
        to: u32,
        hop: Hop,
    },
    /// The rank's call of rank 0 ends since it has died.
    CallerDied {
        rank: u32,
    },
    /// A clock of the rank.
    Clock {
        rank: u32,
    },
    /// The rank's process ends, after it has left.
    Exit {
        rank: u32,
    },
    /// The rank's program makes its next call.
    Begin {
        rank: u32,
    },
    /// The rank sends heartbeats.
    Beat {
        rank: u32,
    },
    Die {
        rank: u32,
    },
}

struct Rank {
    branch: Branch,
    is_alive: bool,
    /// Whether it was given up, or rank 0 is lost.
    is_cut: bool,
    /// Whether it has left, and when rank 0 has said that it knows.
    leaves: bool,
    bye: Option<Instant>,
    parent: Option<u32>,
    calls: bool,
    /// The round of its program, and whether it waits for the outcome.
    round: u64,
    waits: bool,
    letters: BTreeSet<(u64, u32)>,
    outcomes: Vec<Outcome>,
    lost: BTreeSet<u32>,
    /// When its clock rings.
    clock: Option<Instant>,
    /// Hops that it has sent and received.
    hops: u64,
}

/// A connection, and when the last hop in each direction arrives.
struct Link {
    ends: [u32; 2],
    arrivals: [Instant; 2],
}

pub(crate) struct Network {
    pub(crate) size: u32,
    windows: u64,
    hub: Hub,
    ranks: Vec<Rank>,
    now: Instant,
    /// What happens next, in the order of time. Events of one moment keep their order.
    events: BTreeMap<(Instant, u64), Event>,
    /// The last number of an event or a connection.
    next: u64,
    links: BTreeMap<u64, Link>,
    /// The connections of a rank, by the rank at the other end.
    neighbours: Vec<BTreeMap<u32, u64>>,
    random: Random,
    /// The longest time of a hop, and the longest that a program computes between its calls.
    slowest: Duration,
    thinks: Duration,
    pub(crate) dead: BTreeSet<u32>,
    beats: bool,
    /// Whether ranks leave when their programs end.
    pub(crate) leave_at_the_end: bool,
}

impl Network {
    /// A job whose ranks open so many windows, on nodes with `each` ranks.
    pub(crate) fn new(size: u32, each: u32, windows: u64, seed: u64) -> Self {
        let node = |rank: u32| {
            let mut node = [0; 32];
            node[..4].copy_from_slice(&(rank / each).to_le_bytes());
            node
        };
        let now = Instant::now();
        let arity = (size > ARITY as u32).then_some(ARITY);
        let mut network = Self {
            size,
            windows,
            hub: Hub::new(size as usize, arity, node(0), [0; 16], SILENCE),
            ranks: (0..size)
                .map(|rank| Rank {
                    branch: Branch::new(rank),
                    is_alive: true,
                    is_cut: false,
                    leaves: false,
                    bye: None,
                    parent: None,
                    calls: false,
                    round: 0,
                    waits: false,
                    letters: BTreeSet::new(),
                    outcomes: Vec::new(),
                    lost: BTreeSet::new(),
                    clock: None,
                    hops: 0,
                })
                .collect(),
            now,
            events: BTreeMap::new(),
            next: 0,
            links: BTreeMap::new(),
            neighbours: vec![BTreeMap::new(); size as usize],
            random: Random::new(seed),
            slowest: Duration::from_micros(100),
            thinks: Duration::ZERO,
            dead: BTreeSet::new(),
            beats: false,
            leave_at_the_end: false,
        };
        for rank in 1..size {
            let (node, port) = (node(rank), 1);
            let hop = Hop::Join { node, port };
            let delay = network.delay();
            network.ranks[rank as usize].calls = true;
            network.at(delay, Event::Call { from: rank, hop });
        }
        network
    }

    /// Makes ranks come to their calls at different times, and send heartbeats.
    pub(crate) fn be_uneven(&mut self) {
        self.thinks = Duration::from_millis(self.random.below(40));
        self.slowest = Duration::from_micros(10 + self.random.below(5000));
        self.beats = true;
        for rank in 0..self.size {
            self.at(Duration::from_secs(1), Event::Beat { rank });
        }
    }

    fn delay(&mut self) -> Duration {
        let most = self.slowest.as_micros() as u64;
        Duration::from_micros(1 + self.random.below(most))
    }

    fn at(&mut self, delay: Duration, event: Event) {
        self.schedule(self.now + delay, event);
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.next += 1;
        self.events.insert((at, self.next), event);
    }

    pub(crate) fn kill_after(&mut self, rank: u32, delay: Duration) {
        self.at(delay, Event::Die { rank });
    }

    /// Goes on until nothing more happens, or for so long.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        let is_before = |(at, _): &(Instant, u64)| *at <= end;
        while self.events.keys().next().is_some_and(is_before) {
            self.step();
        }
        self.now = end;
    }

    /// Goes on until all programs are at this round, and nothing is under way.
    pub(crate) fn run_until_round(&mut self, round: u64) {
        while self.step() {}
        let all = self.ranks.iter().all(|rank| rank.round >= round);
        assert!(all, "not all ranks have come to round {round}");
    }

    /// Handles the next event. Returns whether there was one.
    fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.events.pop_first() else {
            return false;
        };
        self.now = at.max(self.now);
        self.handle(event);
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Hop { link, to, hop } => {
                let Some(ends) = self.links.get(&link).map(|link| link.ends) else {
                    return;
                };
                let from = ends[usize::from(ends[0] == to)];
                if self.ranks[to as usize].is_alive {
                    self.ranks[to as usize].hops += 1;
                    self.hear(from, to, hop);
                }
            }
            Event::Closed { link, at } => {
                let Some(ends) = self.links.get(&link).map(|link| link.ends) else {
                    return;
                };
                let from = ends[usize::from(ends[0] == at)];
                if self.neighbours[at as usize].get(&from) == Some(&link) {
                    self.neighbours[at as usize].remove(&from);
                    self.links.remove(&link);
                    if self.ranks[at as usize].is_alive {
                        self.lose(at, from);
                    }
                }
            }
            Event::Call { from, hop } => {
                if !self.ranks[0].is_alive {
                    return self.cut(from);
                }
                let address = Some(([127, 0, 0, 1], 1).into());
                match hop {
                    Hop::Join { node, .. } => self.hub.join(from, node, address),
                    Hop::Resume => self.hub.resume(from, self.now),
                    Hop::Unreached => self.hub.unreached(from),
                    other => panic!("{other:?}"),
                }
                self.settle(0);
            }
            Event::Answer { to, hop } => self.hear_answer(to, hop),
            Event::CallerDied { rank } => {
                if self.ranks[0].is_alive {
                    self.hub.caller_ended(rank, "it has died");
                    self.settle(0);
                }
            }
            Event::Clock { rank } => {
                if self.ranks[rank as usize]
                    .clock
                    .is_some_and(|at| at <= self.now)
                {
                    self.ranks[rank as usize].clock = None;
                }
                if rank == 0 {
                    self.hub.tick(self.now);
                }
                self.settle(rank);
                self.exit(rank);
            }
            Event::Begin { rank } => {
                self.begin(rank);
                self.settle(rank);
            }
            Event::Beat { rank } => {
                if !self.ranks[rank as usize].is_alive {
                    return;
                }
                let branch = &self.ranks[rank as usize].branch;
                let beats: Vec<_> = branch
                    .children()
                    .map(|child| (child, branch.upto(child)))
                    .collect();
                for (child, upto) in beats {
                    self.send(rank, child, Hop::Beat { upto });
                }
                self.at(Duration::from_secs(1), Event::Beat { rank });
            }
            Event::Exit { rank } => {
                let state = &mut self.ranks[rank as usize];
                // A process that ends does not wait for long for those below it.
                state.is_alive &= rank == 0;
                self.close_all(rank);
            }
            Event::Die { rank } => {
                if self.ranks[rank as usize].is_alive {
                    self.dead.insert(rank);
                    self.die(rank);
                }
            }
        }
    }

    fn connect(&mut self, one: u32, other: u32) {
        self.next += 1;
        let link = Link {
            ends: [one, other],
            arrivals: [self.now; 2],
        };
        self.links.insert(self.next, link);
        self.neighbours[one as usize].insert(other, self.next);
        self.neighbours[other as usize].insert(one, self.next);
    }

    fn send(&mut self, from: u32, to: u32, hop: Hop) {
        let Some(number) = self.neighbours[from as usize].get(&to).copied() else {
            return;
        };
        self.ranks[from as usize].hops += 1;
        let delay = self.delay();
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let arrival = &mut link.arrivals[usize::from(link.ends[0] == from)];
        *arrival = (*arrival).max(self.now + delay);
        let at = *arrival;
        self.schedule(
            at,
            Event::Hop {
                link: number,
                to,
                hop,
            },
        );
    }

    /// Closes a connection: the other end notices it, after what is under way.
    fn close(&mut self, by: u32, other: u32) {
        let Some(number) = self.neighbours[by as usize].remove(&other) else {
            return;
        };
        let delay = self.delay();
        if let Some(link) = self.links.get(&number) {
            let arrival = link.arrivals[usize::from(link.ends[0] == by)];
            let at = arrival.max(self.now + delay);
            self.schedule(
                at,
                Event::Closed {
                    link: number,
                    at: other,
                },
            );
        }
    }

    fn die(&mut self, rank: u32) {
        self.ranks[rank as usize].is_alive = false;
        // The kernel throws away what is unread, and perhaps what the dead rank had sent.
        if self.random.below(2) == 0 {
            let keeps = self.random.below(3);
            let links: BTreeSet<_> = self.neighbours[rank as usize].values().copied().collect();
            let random = &mut self.random;
            let mut broken = BTreeSet::new();
            self.events.retain(|_, event| match event {
                Event::Hop { link, to, .. } if links.contains(link) && *to != rank => {
                    // Nothing arrives behind something that is lost.
                    !broken.contains(link) && (random.below(3) < keeps || !broken.insert(*link))
                }
                _ => true,
            });
        }
        self.close_all(rank);
        if rank == 0 {
            // Those that wait for its answer notice it, too.
            let waits = |rank: &u32| self.ranks[*rank as usize].calls;
            let all: Vec<_> = (1..self.size).filter(waits).collect();
            all.into_iter().for_each(|rank| self.cut(rank));
        }
        if self.ranks[rank as usize].calls {
            let delay = self.delay();
            self.at(delay, Event::CallerDied { rank });
        }
    }

    fn close_all(&mut self, rank: u32) {
        if rank == 0 && self.ranks[0].is_alive {
            return;
        }
        let others: Vec<_> = self.neighbours[rank as usize].keys().copied().collect();
        for other in others {
            self.close(rank, other);
        }
    }
}
