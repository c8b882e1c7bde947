//! Whether recorded steps can be replayed any number of times.
//!
//! # Model
//!
//! A recording is a marked graph. Its transitions are the waits and adds of all lanes, and the beginning and the end of
//! each batch. Its places are the order of a lane, of a stream, and of hand-offs; and the words. Each word has one half
//! that adds and one that waits, both in order, so there are no conflicts. `m` is the number of adds that came before
//! the first replay, less the waits.
//!
//! If each word gets as many adds as waits, one replay restores the marking, so a schedule of one replay can be repeated
//! for ever. One replay has a schedule if and only if its precedence graph has no cycle. There, wait number `i` on a
//! word comes after add number `i - m`, if `i > m`. The guide has the assumptions, and the proof.
//!
//! # Cost
//!
//! Linear in the number of steps.

use std::collections::BTreeMap;

use super::record::{Act, Before, Op, Record, Work};
use super::verdict::{CycleWait, Doubt, Flaw, Proof, RankCall, Unbalanced, Unput, Verdict};
use crate::observe::{EpochCall, Operation};

/// A word: one rank adds to it, and another (or the same) waits for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Word {
    window: tidegate_hal::ids::WindowId,
    adder: u32,
    waiter: u32,
    signal: Operation,
}

/// The number of a transition.
type Node = u32;

/// The transitions that add to a word and that wait for it, in order.
#[derive(Default)]
struct Uses {
    adds: Vec<Node>,
    waits: Vec<Node>,
    /// Adds before the first replay, less waits.
    marking: i128,
}

/// What a transition is, for people.
#[derive(Clone, Copy)]
struct Label {
    rank: u32,
    stream: u32,
    /// The call and its line; none for a hand-off.
    call: Option<(EpochCall, u32)>,
    /// For a step of a lane.
    op: Option<Op>,
}

/// The precedence graph of one replay.
#[derive(Default)]
struct Net {
    labels: Vec<Label>,
    /// The transitions before each one. A wait's add is the last of them.
    before: Vec<Vec<Node>>,
    words: BTreeMap<Word, Uses>,
}

/// Proves that all ranks can replay these recordings together, any number of times; or finds why not.
pub(super) fn check(all: &[Record]) -> Verdict {
    for (rank, record) in all.iter().enumerate() {
        if let Some(window) = record.lent.first() {
            let (window, name) = record.windows[*window as usize].clone();
            return Verdict::Unknown(Doubt::ByKernel { rank, window, name });
        }
    }
    let mut net = Net::default();
    for (rank, record) in all.iter().enumerate() {
        net.add(rank as u32, record);
    }
    for (rank, record) in all.iter().enumerate() {
        for before in &record.before {
            net.begin(rank as u32, record, before);
        }
    }
    if let Some(verdict) = net.balance(all) {
        return verdict;
    }
    match net.cycle() {
        Some(cycle) => Verdict::Refused(Flaw::Cycle(net.explain(&cycle, all))),
        None => Verdict::Proved(Proof {
            ranks: all.len(),
            steps: net.labels.iter().filter(|label| label.op.is_some()).count(),
            unput: unput(all),
        }),
    }
}

impl Net {
    fn node(&mut self, label: Label, before: Vec<Node>) -> Node {
        self.labels.push(label);
        self.before.push(before);
        Node::try_from(self.labels.len() - 1).expect("a recording is no longer than memory")
    }

    /// Adds the transitions of one rank.
    fn add(&mut self, rank: u32, record: &Record) {
        // The last transition of each stream.
        let mut last: Vec<Option<Node>> = vec![None; record.streams.len()];
        let mut signals = BTreeMap::new();
        for item in &record.items {
            let stream = item.stream as usize;
            let label = Label {
                rank,
                stream: item.stream,
                call: None,
                op: None,
            };
            let before = Vec::from_iter(last[stream]);
            let end = match &item.work {
                Work::Signal(number) => {
                    let node = self.node(label, before);
                    signals.insert(*number, node);
                    node
                }
                // A hand-off that began before the recording is no hand-off of the recording.
                Work::Await(number) => {
                    let signal = signals.get(number).copied();
                    self.node(label, before.into_iter().chain(signal).collect())
                }
                Work::Batch { call, site, batch } => {
                    let label = Label {
                        call: Some((*call, *site)),
                        ..label
                    };
                    let begin = self.node(label, before);
                    let mut ends = vec![begin];
                    for lane in &record.batches[*batch as usize] {
                        let mut at = begin;
                        for op in lane {
                            let op = *op;
                            at = self.node(
                                Label {
                                    op: Some(op),
                                    ..label
                                },
                                vec![at],
                            );
                            let uses = self.words.entry(Word::of(op, rank, record)).or_default();
                            match op.act {
                                Act::Add => uses.adds.push(at),
                                Act::Wait => uses.waits.push(at),
                            }
                        }
                        ends.push(at);
                    }
                    self.node(label, ends)
                }
            };
            last[stream] = Some(end);
        }
    }

    /// Counts what came before the first replay.
    fn begin(&mut self, rank: u32, record: &Record, before: &Before) {
        let op = |act, awaited| Op {
            act,
            window: before.window,
            peer: before.peer,
            awaited,
        };
        let mut count = |op: Op, change: i128| {
            if let Some(uses) = self.words.get_mut(&Word::of(op, rank, record)) {
                uses.marking += change;
            }
        };
        let given = i128::from(before.count);
        count(op(Act::Add, before.given), given);
        match (before.given, before.waited) {
            // An origin waits for one post before each of its completes.
            (Operation::Complete, _) => {
                count(op(Act::Wait, Operation::Post), -given);
                // Where targets read this rank's memory, it waits for that once in each epoch.
                count(op(Act::Wait, Operation::Pull), -given);
            }
            (given, Some(waited)) => {
                let awaited = match given {
                    Operation::Arrive => Operation::Arrive,
                    _ => Operation::Complete,
                };
                count(op(Act::Wait, awaited), -i128::from(waited));
                count(op(Act::Add, Operation::Pull), i128::from(waited));
            }
            (_, None) => {}
        }
    }

    /// Checks that one replay restores the marking. If so, notes which wait comes after which add.
    fn balance(&mut self, all: &[Record]) -> Option<Verdict> {
        // A wait that lacks its signal shows best what is wrong.
        let differs = |(_, uses): &(_, &Uses)| uses.adds.len() != uses.waits.len();
        let wrong = self.words.iter().filter(differs);
        let wrong = wrong.max_by_key(|(_, uses)| uses.adds.len() < uses.waits.len());
        if let Some((word, uses)) = wrong {
            let place = |nodes: &[Node]| {
                let node = *nodes.first()?;
                Some(call_of(&self.labels[node as usize], all))
            };
            return Some(Verdict::Refused(Flaw::Unbalanced(Box::new(Unbalanced {
                window: word.window,
                name: name(word, all),
                adder: word.adder as usize,
                waiter: word.waiter as usize,
                signal: word.signal,
                adds: uses.adds.len(),
                waits: uses.waits.len(),
                add: place(&uses.adds),
                wait: place(&uses.waits),
            }))));
        }
        for (word, uses) in &self.words {
            let Ok(ahead) = usize::try_from(uses.marking) else {
                return Some(Verdict::Unknown(Doubt::Behind {
                    window: word.window,
                    name: name(word, all),
                    adder: word.adder as usize,
                    waiter: word.waiter as usize,
                    signal: word.signal,
                    missing: u64::try_from(-uses.marking).unwrap_or(u64::MAX),
                }));
            };
            for (wait, add) in uses.waits.iter().skip(ahead).zip(&uses.adds) {
                self.before[*wait as usize].push(*add);
            }
        }
        None
    }

    /// A cycle, if there is one: each transition comes after the next.
    fn cycle(&self) -> Option<Vec<Node>> {
        let mut after: Vec<Vec<Node>> = vec![Vec::new(); self.labels.len()];
        let mut left: Vec<u32> = Vec::with_capacity(self.labels.len());
        for (node, before) in self.before.iter().enumerate() {
            left.push(before.len() as u32);
            for before in before {
                after[*before as usize].push(node as Node);
            }
        }
        let mut ready: Vec<Node> = (0..self.labels.len() as Node)
            .filter(|node| left[*node as usize] == 0)
            .collect();
        while let Some(node) = ready.pop() {
            for next in &after[node as usize] {
                let left = &mut left[*next as usize];
                *left -= 1;
                if *left == 0 {
                    ready.push(*next);
                }
            }
        }
        // Each transition that is left has one before it that is left, so going back from one meets a cycle.
        let first = left.iter().position(|left| *left > 0)? as Node;
        let mut met = vec![None; self.labels.len()];
        let mut path = Vec::new();
        let mut node = first;
        loop {
            if let Some(begin) = met[node as usize] {
                return Some(path.split_off(begin));
            }
            met[node as usize] = Some(path.len());
            path.push(node);
            // A wait's add is its last, and tells more than the order of the lane.
            let mut before = self.before[node as usize].iter().rev();
            node = *before.find(|before| left[**before as usize] > 0)?;
        }
    }

    /// The cycle for people: the waits in it, and the calls behind which their adds stand.
    fn explain(&self, cycle: &[Node], all: &[Record]) -> Vec<CycleWait> {
        let label = |node: Node| &self.labels[node as usize];
        let is_wait = |node: &Node| label(*node).op.is_some_and(|op| op.act == Act::Wait);
        // It begins with a wait: without one, the order of a stream and of hand-offs has no cycle.
        let begin = cycle.iter().position(is_wait).unwrap_or(0);
        let turned: Vec<Node> = [&cycle[begin..], &cycle[..begin]].concat();
        let mut hops = Vec::new();
        for (at, node) in turned.iter().enumerate() {
            let next = turned[(at + 1) % turned.len()];
            let (here, there) = (label(*node), label(next));
            // Only a word leads from a wait to an add of another lane or another rank.
            let is_word = |op: &Op| {
                op.act == Act::Wait
                    && there
                        .op
                        .is_some_and(|add| add.act == Act::Add && self.is_of_wait(*node, next))
            };
            if let Some(op) = here.op.filter(is_word) {
                let record = &all[here.rank as usize];
                let (window, name) = &record.windows[op.window as usize];
                hops.push(CycleWait {
                    wait: call_of(here, all),
                    window: *window,
                    name: name.clone(),
                    signal: op.awaited,
                    add: call_of(there, all),
                });
            }
        }
        hops
    }

    /// Whether the wait comes after that add because of their word.
    fn is_of_wait(&self, wait: Node, add: Node) -> bool {
        self.before[wait as usize].len() > 1 && self.before[wait as usize].last() == Some(&add)
    }
}

impl Word {
    /// The word of a step of this rank.
    fn of(op: Op, rank: u32, record: &Record) -> Self {
        let (adder, waiter) = match op.act {
            Act::Add => (rank, op.peer),
            Act::Wait => (op.peer, rank),
        };
        Word {
            window: record.windows[op.window as usize].0,
            adder,
            waiter,
            signal: op.awaited,
        }
    }
}

/// The name of a word's window, from one of the two ranks.
fn name(word: &Word, all: &[Record]) -> String {
    let mut ranks = [word.adder, word.waiter].into_iter();
    let name = ranks.find_map(|rank| {
        let windows = &all[rank as usize].windows;
        let known = windows.iter().find(|(id, _)| *id == word.window);
        known.map(|(_, name)| name.clone())
    });
    name.unwrap_or_default()
}

fn call_of(label: &Label, all: &[Record]) -> RankCall {
    let record = &all[label.rank as usize];
    let (call, site) = match label.call {
        Some((call, site)) => (call.to_string(), record.sites[site as usize].clone()),
        None => ("hand-off".to_owned(), String::new()),
    };
    RankCall {
        rank: label.rank as usize,
        stream: record.streams[label.stream as usize].clone(),
        call,
        site,
    }
}

/// The slots that are not put in every epoch, of all ranks.
fn unput(all: &[Record]) -> Vec<Unput> {
    let of = |(rank, record): (usize, &Record)| -> Vec<Unput> {
        let unput = record.unput.iter().map(|unput| {
            let (window, name) = &record.windows[unput.window as usize];
            Unput {
                rank,
                window: *window,
                name: name.clone(),
                slots: unput.slots.clone(),
                site: record.sites[unput.site as usize].clone(),
            }
        });
        unput.collect()
    };
    all.iter().enumerate().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
