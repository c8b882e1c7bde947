//! The algorithms: from a rank, the number of ranks and the lengths to a schedule.
//!
//! # Model
//!
//! | collective | short | long |
//! |---|---|---|
//! | broadcast | a tree in which a rank has up to 7 children at each level | the root deals out chunks; each rank sends its chunk to the others |
//! | reduce | all send to the root, which reduces | ranks reduce chunks, and send them to the root |
//! | all-reduce | all send to all, and each reduces; many ranks gather in a logarithm of rounds | ranks reduce chunks, and send them to all |
//! | all-gather | all send to all; many ranks gather in a logarithm of rounds | all send to all |
//! | gather, scatter, all-to-all, reduce-scatter | each datum goes directly to its rank | the same |
//! | counted all-to-all | rows go directly to their rank, beside their number | the same |
//! | scan | each sends to all higher ranks, which reduce; more than two ranks of the host, and many GPUs, from rank to rank | from rank to rank |
//!
//! Between nodes, data goes once a node ([`levels`], [`bundled`], [`along`]). A short reduce gathers then, a short
//! all-reduce gathers on all ranks, and long reductions go from node to node.
//!
//! Long data goes in pieces, one in each stage. Algorithms of two phases overlap them: while piece i is in the first
//! phase, piece i - 1 is in the second.
//!
//! **The order of reductions is always the same**: each element is reduced in the order of the ranks, from rank 0 on. So
//! the result depends on no choice, no length and no device. That rules out rings and recursive doubling, whose order
//! differs between elements or ranks. A direct exchange of chunks sends as few bytes as a ring.

mod along;
mod bundled;
mod counted;
mod direct;
mod levels;
mod reduce;
mod scan;
mod tree;

use self::along::Goal;
use super::choice::Choice;
use super::reduction::Reduction;
use super::schedule::{Blocks, Buffer, Job, Schedule};
use crate::window::JointKind;

/// What is done, and with how many elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct What {
    pub(crate) kind: JointKind,
    pub(crate) counts: Counts,
    /// If it reduces.
    pub(crate) reduction: Option<Reduction>,
}

/// The lengths of the blocks of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// The vector, or each block, has so many elements.
    Equal(usize),
    /// Each rank's block.
    Each(Vec<usize>),
    /// What this rank sends to each rank, and what it receives from each.
    Pairs(Vec<usize>, Vec<usize>),
}

impl Counts {
    /// The blocks of all ranks.
    pub(crate) fn blocks(&self, ranks: usize) -> Blocks {
        match self {
            Counts::Equal(count) => Blocks::equal(ranks, *count),
            Counts::Each(counts) | Counts::Pairs(counts, _) => Blocks::new(counts),
        }
    }

    /// The blocks that this rank receives.
    pub(crate) fn received(&self, ranks: usize) -> Blocks {
        match self {
            Counts::Pairs(_, counts) => Blocks::new(counts),
            _ => self.blocks(ranks),
        }
    }

    /// The length of the vector.
    pub(crate) fn vector(&self) -> usize {
        match self {
            Counts::Equal(count) => *count,
            Counts::Each(_) | Counts::Pairs(..) => unreachable!("vectors have one length"),
        }
    }
}

/// What this rank does. `in_place` says that the input is where the output will be.
pub(crate) fn schedule(job: &Job, choice: &Choice, what: &What, in_place: bool) -> Schedule {
    let input = match in_place {
        true => Buffer::Output,
        false => Buffer::Input,
    };
    let counts = &what.counts;
    let nodes = &job.nodes;
    let others = nodes.peers();
    let is_below = |bound: usize, times: usize, elements: usize| {
        let bytes = elements.saturating_mul(job.size);
        bytes.saturating_mul(times) <= bound
    };
    // Each rank sends to all others, and what each of them gets takes its time, too. Where these times add up, as
    // measured, the bound falls with the square.
    let square = |others: usize| others * others;
    // A network carries the messages of a rank one after the other.
    let at_once = choice.at_once && nodes.groups().len() == 1;
    let is_short = |elements| match at_once {
        true => is_below(choice.short, others, elements),
        false => is_below(choice.short, square(others), elements),
    };
    // In a reduce, only one rank gets much, and only once.
    let is_short_to_one = |elements| match at_once {
        true => is_below(choice.short.saturating_mul(4), others, elements),
        false => is_short(elements),
    };
    let is_crowd = others >= choice.few;
    // Whether the blocks of each node are so short that one message for all of them is faster than one for each.
    let is_bundled = |blocks: &Blocks| {
        let longest = bundled::longest_bundle(nodes, blocks);
        nodes.are_layered()
            && longest <= job.piece
            && longest.saturating_mul(job.size) <= choice.short
    };
    // Whether a reduction of so many elements goes from node to node, which it can in the order of the ranks.
    let is_along = |elements: usize| {
        let may = nodes.are_layered() && nodes.are_in_order();
        may && elements.saturating_mul(job.size) >= choice.along
    };
    let made = match what.kind {
        JointKind::Broadcast { root } => {
            let count = counts.vector();
            match job.ranks < 3 || is_short(count) {
                true => tree::broadcast(job, root, count),
                false => levels::deal(job, root, count),
            }
        }
        JointKind::Gather { root } => {
            let blocks = counts.blocks(job.ranks);
            let place = |rank: usize| direct::OUTPUT.plus(blocks.first(rank));
            match is_bundled(&blocks) {
                true => bundled::gather(job, root, &blocks, direct::INPUT, place).0,
                false => direct::gather(job, root, &blocks),
            }
        }
        JointKind::Scatter { root } => {
            let blocks = counts.blocks(job.ranks);
            match is_bundled(&blocks) {
                true => bundled::scatter(job, root, &blocks),
                false => direct::scatter(job, root, &blocks),
            }
        }
        JointKind::AllGather => {
            let blocks = counts.blocks(job.ranks);
            match counts {
                Counts::Equal(count)
                    if is_crowd && blocks.all().saturating_mul(job.size) <= choice.short =>
                {
                    tree::all_gather(job, input, *count)
                }
                _ => levels::all_gather(job, input, &blocks),
            }
        }
        JointKind::AllToAll => {
            let (to, from) = (counts.blocks(job.ranks), counts.received(job.ranks));
            direct::all_to_all(job, &to, &from)
        }
        JointKind::Counted { row } => counted::all_to_all(job, row, counts.vector()),
        // Of two ranks, one sends its whole vector in any case.
        JointKind::Reduce { root } => {
            let count = counts.vector();
            if job.ranks < 3 || is_short_to_one(count) {
                match is_bundled(&Blocks::equal(job.ranks, count)) {
                    true => bundled::gather_and_reduce(job, root, count),
                    false => reduce::to_root(job, root, count),
                }
            } else if is_along(count) {
                let chunks = Blocks::split(nodes.longest(), count);
                along::along_nodes(job, Buffer::Output, &chunks, Goal::Rank(root))
            } else {
                reduce::chunks_to_root(job, root, count)
            }
        }
        JointKind::AllReduce => {
            let count = counts.vector();
            // In a crowd, a rank would have a slot for each of the others. What it gathers in place of that is bounded.
            let gathered = count.saturating_mul(job.ranks).saturating_mul(job.size);
            let is_whole = match job.ranks {
                ..=2 => count.saturating_mul(job.size) <= choice.pair,
                _ => !is_crowd && is_short(count),
            };
            if is_crowd && gathered <= choice.short.saturating_mul(8) {
                tree::all_reduce(job, input, count)
            } else if is_whole {
                match nodes.are_layered() {
                    true => levels::share_and_reduce(job, input, count),
                    false => reduce::everywhere(job, input, count),
                }
            } else if is_along(count) {
                let chunks = Blocks::split(nodes.longest(), count);
                along::along_nodes(job, input, &chunks, Goal::All)
            } else {
                reduce::chunks_to_all(job, input, count)
            }
        }
        JointKind::ReduceScatter => {
            let count = counts.vector();
            let all = count.saturating_mul(job.ranks);
            match is_along(all) && !is_short(all) {
                true => {
                    let blocks = Blocks::equal(job.ranks, count);
                    along::along_nodes(job, Buffer::Input, &blocks, Goal::Each)
                }
                false => reduce::scatter(job, count),
            }
        }
        JointKind::Scan { exclusive } => {
            let count = counts.vector();
            // A direct scan makes no difference between nodes, so all ranks count. The highest rank gets most.
            let is_short = is_below(choice.short, square(job.ranks - 1), count);
            match job.ranks <= choice.scan && is_short {
                true => scan::direct(job, input, exclusive, count),
                false => scan::chain(job, input, exclusive, count),
            }
        }
    };
    made.finish()
}
