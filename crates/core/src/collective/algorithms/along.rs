//! Reductions from node to node, in the order of the ranks.

use super::super::schedule::{Blocks, Buffer, From, Job, Schedule, Spot};
use super::direct::{OUTPUT, SCRATCH};

/// Where the chunks of a reduction go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    All,
    Rank(usize),
    /// Each chunk to the rank of its number, to the beginning of its output.
    Each,
}

impl Goal {
    /// The one rank that gets a chunk, unless all do.
    fn only(self, chunk: usize) -> Option<usize> {
        match self {
            Goal::All => None,
            Goal::Rank(root) => Some(root),
            Goal::Each => Some(chunk),
        }
    }
}

/// A chunk is cut into this many pieces for each node: while one piece goes from node to node, others follow.
const FOLLOW: usize = 4;

/// But no piece that nodes send each other has fewer bytes than this.
const SHORTEST: usize = 16 << 10;

/// A reduction where the ranks of each node follow each other. In a node, each rank reduces some chunks. What it has
/// goes to the rank of the next node that works on the same chunk, and that rank goes on with the vectors of its own
/// node. So each element is reduced in the order of the ranks. Where all ranks need the result, it goes back from node
/// to node, and from each of these ranks to those of its node.
pub(super) fn along_nodes(job: &Job, input: Buffer, chunks: &Blocks, goal: Goal) -> Schedule {
    let mut made = Schedule::default();
    let nodes = &job.nodes;
    let (here, all) = (nodes.of(job.rank), nodes.groups().len());
    let last = all - 1;
    let near = || nodes.groups()[here].iter().copied();
    let bytes = chunks.longest().saturating_mul(job.size);
    let piece = (bytes / (FOLLOW * all)).max(SHORTEST) / job.size;
    let pieces = Job {
        piece: piece.clamp(1, job.piece),
        ..job.clone()
    };
    let worker = |node: usize, chunk: usize| match goal {
        Goal::Each => nodes.worker(node, nodes.seat(chunk)),
        _ => nodes.worker(node, chunk),
    };
    let count_of_chunks = match goal {
        Goal::Each => job.ranks,
        _ => nodes.longest(),
    };
    let mut works_on = 0;
    for chunk in 0..count_of_chunks {
        let me = worker(here, chunk);
        let is_mine = me == job.rank;
        // The ranks of the neighbouring nodes that work on the chunk.
        let before = here.checked_sub(1).map(|node| worker(node, chunk));
        let after = (here < last).then(|| worker(here + 1, chunk));
        let only = goal.only(chunk);
        // The vectors and what has been reduced have one key, and the result has another.
        let (key, result) = (chunk as u64, (count_of_chunks + chunk) as u64);
        let scratch = SCRATCH.plus(works_on * pieces.piece);
        works_on += usize::from(is_mine);
        for number in 0..pieces.pieces_of(chunks.count(chunk)) {
            let (first, count) = pieces.piece_of(chunks.count(chunk), number);
            let own = Spot::new(input, chunks.first(chunk) + first);
            let place = match goal {
                Goal::Each => OUTPUT.plus(first),
                _ => OUTPUT.plus(chunks.first(chunk) + first),
            };
            let step = number + here;
            // The step in which the last node has reduced the piece.
            let reduced = number + last;
            if !is_mine {
                made.send(job, step, (me, key), own, count);
            } else {
                let gets = only.is_none_or(|rank| rank == job.rank);
                let to = if after.is_none() && gets {
                    place
                } else {
                    scratch
                };
                let mut mine = own;
                made.needs_scratch(works_on * pieces.piece);
                if own == to {
                    made.copy_beside(job.end(step), own, scratch, count);
                    mine = scratch;
                }
                let vector = |rank| match rank == job.rank {
                    true => From::Spot(mine),
                    false => made.receive(job, step, (rank, key), count),
                };
                let vectors: Vec<_> = before.into_iter().chain(near()).map(vector).collect();
                made.fold_behind(job.end(step), &vectors, to, count);
                if let Some(after) = after {
                    made.send(job, step + 1, (after, key), scratch, count);
                }
            }
            if let Some(rank) = only {
                let from = worker(last, chunk);
                if from == job.rank && rank != job.rank {
                    made.send(job, reduced + 1, (rank, result), scratch, count);
                }
                if rank == job.rank && from != job.rank {
                    made.take(job, reduced + 1, (from, result), place, count);
                }
                continue;
            }
            // The result comes from the next node, and goes on in the step after.
            let step = reduced + last - here + 1;
            if !is_mine {
                made.take(job, step, (me, result), place, count);
                continue;
            }
            if let Some(after) = after {
                made.take(job, step - 1, (after, result), place, count);
            }
            for rank in near().filter(|rank| *rank != job.rank).chain(before) {
                made.send(job, step, (rank, result), place, count);
            }
        }
    }
    made
}
