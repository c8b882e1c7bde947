//! Graphs, and their executable forms.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::handle::Handle;
use crate::work::{Number, What};

/// The ports and the kind of an edge from the end of the other node.
pub(crate) const PLAIN: (u8, u8, u8) = (0, 0, 0);
/// The same, of an edge from the moment when all blocks of the other have allowed it.
pub(crate) const PROGRAMMATIC: (u8, u8, u8) = (1, 0, 1);

#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Handle>,
    pub(crate) edges: Vec<Edge>,
}

#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) from: Handle,
    pub(crate) to: Handle,
    pub(crate) how: (u8, u8, u8),
}

/// The action of a node.
pub(crate) enum Node {
    Work(What),
    /// A copy of another graph.
    Child(Arc<[Step]>),
}

impl Node {
    /// As `CUgraphNodeType` counts.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Node::Work(What::Grid(_)) => 0,
            Node::Work(What::Copy(..) | What::Write(..)) => 1,
            Node::Work(What::Fill(..)) => 2,
            Node::Work(What::Call(..)) => 3,
            Node::Child(_) => 4,
            Node::Work(What::Nothing) => 5,
            Node::Work(What::Stamp(_)) => 7,
            Node::Work(What::Free(_)) => 11,
            Node::Work(What::Words(_)) => 12,
        }
    }
}

/// A part of an executable graph, with the indices of the parts that it follows.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) after: Vec<usize>,
    pub(crate) early: Vec<usize>,
}

/// An executable graph.
pub(crate) struct Exec {
    pub(crate) plan: Arc<[Step]>,
    /// The end of its last launch: the next one follows it.
    pub(crate) last: Option<Number>,
}

impl Graph {
    /// These nodes, and all nodes before them.
    pub(crate) fn before(&self, nodes: &[Handle]) -> HashSet<Handle> {
        let mut known: HashSet<Handle> = nodes.iter().copied().collect();
        let mut look = nodes.to_vec();
        while let Some(node) = look.pop() {
            for edge in self.edges.iter().filter(|edge| edge.to == node) {
                if known.insert(edge.from) {
                    look.push(edge.from);
                }
            }
        }
        known
    }

    /// The nodes, each after all that it follows. `None` if they follow each other in a ring.
    pub(crate) fn in_order(&self) -> Option<Vec<Handle>> {
        let mut missing: HashMap<Handle, usize> =
            self.nodes.iter().map(|node| (*node, 0)).collect();
        let mut followers: HashMap<Handle, Vec<Handle>> = HashMap::new();
        for edge in &self.edges {
            *missing.get_mut(&edge.to)? += 1;
            followers.entry(edge.from).or_default().push(edge.to);
        }
        let first = self.nodes.iter().filter(|node| missing[*node] == 0);
        let mut order: Vec<Handle> = first.copied().collect();
        let mut at = 0;
        while at < order.len() {
            for follower in followers.remove(&order[at]).into_iter().flatten() {
                let missing = missing.get_mut(&follower)?;
                *missing -= 1;
                if *missing == 0 {
                    order.push(follower);
                }
            }
            at += 1;
        }
        (order.len() == self.nodes.len()).then_some(order)
    }
}
