//! Where the ranks hang in the tree.
//!
//! # Model
//!
//! A rank hangs under a rank of its own node, if there is one with room. The first one of a node *leads* it, and hangs
//! under one that leads another node. So between two nodes there is at most one connection. A job of few ranks is a
//! star, since that is faster: a message needs two hops at most.

use crate::wire::NodeId;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

/// Up to how many ranks a job is a star.
const STAR: usize = 32;
/// How many children a rank has in a tree.
pub(crate) const ARITY: usize = 6;

#[derive(Clone, Debug, Default)]
struct Place {
    parent: Option<u32>,
    /// The parent that it was told to find.
    promised: Option<u32>,
    /// The number of its node. `None`: the rank has not joined.
    node: Option<u32>,
    address: Option<SocketAddr>,
    leads: bool,
    /// How many children there are, of the same node and of others. Those for whom a place is kept count, too.
    children: [u32; 2],
    /// The children that hang here now.
    below: BTreeSet<u32>,
}

#[derive(Debug)]
pub(super) struct Places {
    /// How many children a rank has. `None`: all ranks are children of rank 0.
    arity: Option<u32>,
    ranks: Vec<Place>,
    /// Nodes are numbered as their first ranks join.
    nodes: HashMap<NodeId, u32>,
    /// The ranks of each node that may have room, those nearest to rank 0 first.
    roomy: Vec<VecDeque<u32>>,
    /// Those that lead a node, and may have room.
    leaders: VecDeque<u32>,
    /// At how many ranks [`Places::below`] has looked.
    #[cfg(test)]
    pub(super) seen: std::cell::Cell<usize>,
}

/// How many children a rank has in a job of so many. `None`: the job is a star.
pub(crate) fn arity_of(size: usize) -> Option<usize> {
    (size > STAR).then_some(ARITY)
}

impl Places {
    /// Places for so many ranks. `node` is that of rank 0.
    pub(super) fn new(size: usize, arity: Option<usize>, node: NodeId) -> Self {
        let mut ranks = vec![Place::default(); size];
        ranks[0].node = Some(0);
        ranks[0].leads = true;
        Self {
            arity: arity.map(|arity| arity as u32),
            ranks,
            nodes: HashMap::from([(node, 0)]),
            roomy: vec![VecDeque::from([0])],
            leaders: VecDeque::from([0]),
            #[cfg(test)]
            seen: std::cell::Cell::new(0),
        }
    }

    pub(super) fn has_joined(&self, rank: usize) -> bool {
        self.ranks[rank].node.is_some()
    }

    /// The node of each rank, after all have joined. They are numbered in the order of their lowest ranks.
    pub(super) fn nodes(&self) -> Vec<u32> {
        let mut numbers = vec![None; self.roomy.len()];
        let mut next = 0..;
        let nodes = self.ranks.iter().filter_map(|place| place.node);
        let nodes = nodes.filter_map(|node| {
            let number = &mut numbers[node as usize];
            *number = number.or_else(|| next.next());
            *number
        });
        nodes.collect()
    }

    pub(super) fn parent(&self, rank: u32) -> Option<u32> {
        self.ranks[rank as usize].parent
    }

    /// The parent that a rank was told to find, and has not found for all that is known.
    pub(super) fn promised(&self, rank: u32) -> Option<u32> {
        self.ranks[rank as usize].promised
    }

    /// Whether the way from a rank to rank 0 is whole, for all that is known.
    pub(super) fn is_connected(&self, rank: u32) -> bool {
        self.depth(rank, &|_| true).is_some()
    }

    pub(super) fn address(&self, rank: u32) -> Option<SocketAddr> {
        self.ranks[rank as usize].address
    }

    /// How many children a rank may have, of its own node (0) and of others (1).
    fn room(&self, rank: u32, kind: usize) -> u32 {
        let Some(arity) = self.arity else {
            return if rank == 0 { u32::MAX } else { 0 };
        };
        let others = match self.ranks[rank as usize].leads {
            true => (arity / 3).max(1),
            false => 0,
        };
        [arity - others, others][kind]
    }

    fn has_room(&self, rank: u32, kind: usize) -> bool {
        self.ranks[rank as usize].children[kind] < self.room(rank, kind)
    }

    /// Ranks that may have room for children of this node: of the same node (0), or of others (1).
    fn candidates(&mut self, node: u32, kind: usize) -> &mut VecDeque<u32> {
        match kind {
            0 => &mut self.roomy[node as usize],
            _ => &mut self.leaders,
        }
    }

    /// Gives a rank that joins its place. Returns its parent.
    pub(super) fn join(&mut self, rank: u32, node: NodeId, address: Option<SocketAddr>) -> u32 {
        let next = self.roomy.len() as u32;
        let node = *self.nodes.entry(node).or_insert(next);
        let is_known = node < next;
        if !is_known {
            self.roomy.push(VecDeque::new());
        }
        let place = &mut self.ranks[rank as usize];
        place.node = Some(node);
        place.address = address;
        let mut parent = 0;
        if self.arity.is_some() {
            let kind = usize::from(!is_known);
            while let Some(first) = self.candidates(node, kind).front().copied() {
                parent = first;
                if self.has_room(first, kind) {
                    break;
                }
                self.candidates(node, kind).pop_front();
            }
            if !is_known {
                self.ranks[rank as usize].leads = true;
                self.leaders.push_back(rank);
            }
            self.roomy[node as usize].push_back(rank);
        }
        self.attach(rank, parent);
        parent
    }

    fn kind(&self, rank: u32, parent: u32) -> usize {
        let nodes = [rank, parent].map(|rank| self.ranks[rank as usize].node);
        usize::from(nodes[0] != nodes[1])
    }

    /// Notes that a rank has this parent.
    pub(super) fn attach(&mut self, rank: u32, parent: u32) {
        self.detach(rank);
        let kind = self.kind(rank, parent);
        self.ranks[rank as usize].parent = Some(parent);
        let above = &mut self.ranks[parent as usize];
        above.children[kind] += 1;
        above.below.insert(rank);
    }

    /// Notes that a rank has no parent.
    pub(super) fn detach(&mut self, rank: u32) {
        let place = &mut self.ranks[rank as usize];
        let parents = [place.parent.take(), place.promised.take()];
        for parent in parents.into_iter().flatten() {
            let kind = self.kind(rank, parent);
            let above = &mut self.ranks[parent as usize];
            above.children[kind] -= 1;
            above.below.remove(&rank);
        }
    }

    /// Keeps a place for a rank that has none now.
    pub(super) fn promise(&mut self, rank: u32, parent: u32) {
        self.detach(rank);
        let kind = self.kind(rank, parent);
        self.ranks[rank as usize].promised = Some(parent);
        self.ranks[parent as usize].children[kind] += 1;
    }

    /// A rank and all ranks below it. At the end of a job the hub asks this about each rank, so it must not look at
    /// others.
    pub(super) fn below(&self, top: u32) -> BTreeSet<u32> {
        let mut below = BTreeSet::new();
        let mut next = vec![top];
        while let Some(rank) = next.pop() {
            // Ranks that name each other as parents form a circle.
            if below.insert(rank) {
                next.extend(&self.ranks[rank as usize].below);
            }
        }
        #[cfg(test)]
        self.seen.set(self.seen.get() + below.len());
        below
    }

    /// How many steps it is from a rank to rank 0. `None`: it does not lead there, or passes by a rank that does not
    /// serve others.
    fn depth(&self, mut rank: u32, serves: &impl Fn(u32) -> bool) -> Option<usize> {
        let mut depth = 0;
        while rank != 0 {
            if !serves(rank) || depth > self.ranks.len() {
                return None;
            }
            rank = self.parent(rank)?;
            depth += 1;
        }
        Some(depth)
    }

    /// A new place for a rank whose parent has ended, below ranks that serve others: as near to rank 0 as possible, and
    /// on its own node if possible. If there is none, that is rank 0.
    pub(super) fn another(&mut self, rank: u32, serves: impl Fn(u32) -> bool) -> u32 {
        self.detach(rank);
        let kinds = [0, 1].into_iter();
        let best = kinds.filter_map(|kind| {
            let all = 0..self.ranks.len() as u32;
            let fit = all.filter(|other| {
                *other != rank && self.kind(rank, *other) == kind && self.has_room(*other, kind)
            });
            let near = fit.filter_map(|other| Some((self.depth(other, &serves)?, other)));
            near.min().map(|(_, other)| (kind, other))
        });
        let best = best.min();
        let (kind, parent) = best.unwrap_or((1, 0));
        if kind == 1 {
            // It leads those of its node that come after it.
            self.ranks[rank as usize].leads = true;
        }
        self.promise(rank, parent);
        parent
    }
}
