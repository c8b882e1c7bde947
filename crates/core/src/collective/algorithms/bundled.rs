//! Gathers and scatters of short blocks: between nodes, the blocks of a node go in one message.

use super::super::nodes::Nodes;
use super::super::schedule::{Blocks, Job, Schedule, Spot};
use super::direct::{INPUT, OUTPUT, SCRATCH};
use super::levels::reduce_scratch;

/// The blocks of a node in one message: for each of its ranks, where its block begins and how long it is; and how long
/// the message is.
fn bundle(ranks: &[usize], blocks: &Blocks) -> (Vec<(usize, usize, usize)>, usize) {
    let mut all = 0;
    let each = ranks.iter().map(|rank| {
        let (at, count) = (all, blocks.count(*rank));
        all += count;
        (*rank, at, count)
    });
    (each.collect(), all)
}

/// The most elements of the blocks of one node.
pub(super) fn longest_bundle(nodes: &Nodes, blocks: &Blocks) -> usize {
    let each = nodes.groups().iter().map(|ranks| bundle(ranks, blocks).1);
    each.max().unwrap_or(0)
}

/// The root gets the blocks of all ranks, those of another node in one message. `own` is this rank's block, and `to`
/// says where a block goes. Returns the schedule, and its last stage.
pub(super) fn gather(
    job: &Job,
    root: usize,
    blocks: &Blocks,
    own: Spot,
    to: impl Fn(usize) -> Spot,
) -> (Schedule, usize) {
    let mut made = Schedule::default();
    let nodes = &job.nodes;
    let (here, home) = (nodes.of(job.rank), nodes.of(root));
    let mine = blocks.count(job.rank);
    let last = job.end(1);
    if job.rank == root {
        made.copy_beside(0, own, to(root), mine);
        for other in nodes.groups()[home].iter().filter(|rank| **rank != root) {
            made.take(job, 0, (*other, 0), to(*other), blocks.count(*other));
        }
        for ranks in nodes.others(home) {
            let (each, all) = bundle(ranks, blocks);
            let from = made.receive(job, 1, (ranks[0], 0), all);
            // Blocks that lie side by side at both ends are one copy.
            let mut copies: Vec<(usize, Spot, usize)> = Vec::new();
            for (rank, at, count) in each {
                match copies.last_mut() {
                    Some((first, spot, len))
                        if *first + *len == at && spot.plus(*len) == to(rank) =>
                    {
                        *len += count
                    }
                    _ => copies.push((at, to(rank), count)),
                }
            }
            for (at, spot, count) in copies {
                made.copy_behind_from(job, 1, ranks[0], from.plus(at), spot, count);
            }
        }
        return (made, last);
    }
    let leader = nodes.worker(here, 0);
    if here == home {
        made.send(job, 0, (root, 0), own, mine);
    } else if job.rank != leader {
        made.send(job, 0, (leader, 0), own, mine);
    } else {
        let (each, all) = bundle(&nodes.groups()[here], blocks);
        made.needs_scratch(all);
        for (rank, at, count) in each {
            match rank == job.rank {
                true => made.copy_beside(0, own, SCRATCH.plus(at), count),
                false => made.take(job, 0, (rank, 0), SCRATCH.plus(at), count),
            }
        }
        made.send(job, 1, (root, 0), SCRATCH, all);
    }
    (made, last)
}

/// Each rank gets its block of the root's. The root sends the blocks of another node in one message.
pub(super) fn scatter(job: &Job, root: usize, blocks: &Blocks) -> Schedule {
    let mut made = Schedule::default();
    let nodes = &job.nodes;
    let (here, home) = (nodes.of(job.rank), nodes.of(root));
    let mine = blocks.count(job.rank);
    // If the blocks of a node do not lie side by side, the root copies them first.
    let begin = usize::from(!nodes.are_in_order());
    if job.rank == root {
        made.copy_beside(0, INPUT.plus(blocks.first(root)), OUTPUT, mine);
        for other in nodes.groups()[home].iter().filter(|rank| **rank != root) {
            made.send(
                job,
                begin,
                (*other, 0),
                INPUT.plus(blocks.first(*other)),
                blocks.count(*other),
            );
        }
        let mut used = 0;
        for ranks in nodes.others(home) {
            let (each, all) = bundle(ranks, blocks);
            let mut from = INPUT.plus(blocks.first(ranks[0]));
            if begin != 0 {
                from = SCRATCH.plus(used);
                for (rank, at, count) in each {
                    made.copy_beside(0, INPUT.plus(blocks.first(rank)), from.plus(at), count);
                }
                used += all;
            }
            made.send(job, begin, (ranks[0], 0), from, all);
        }
        made.needs_scratch(used);
        return made;
    }
    let leader = nodes.worker(here, 0);
    if here == home {
        made.take(job, begin, (root, 0), OUTPUT, mine);
    } else if job.rank != leader {
        made.take(job, begin + 1, (leader, 0), OUTPUT, mine);
    } else {
        let (each, all) = bundle(&nodes.groups()[here], blocks);
        let from = made.receive(job, begin, (root, 0), all);
        for (rank, at, count) in each {
            if rank == job.rank {
                made.copy_behind_from(job, begin, root, from.plus(at), OUTPUT, count);
                continue;
            }
            made.copy_behind_from(job, begin, root, from.plus(at), SCRATCH.plus(at), count);
            made.send(job, begin + 1, (rank, 0), SCRATCH.plus(at), count);
        }
        made.needs_scratch(all);
    }
    made
}

/// A reduce of short vectors: the root gathers all vectors, and reduces them.
pub(super) fn gather_and_reduce(job: &Job, root: usize, count: usize) -> Schedule {
    let blocks = Blocks::equal(job.ranks, count);
    let place = |rank: usize| SCRATCH.plus(rank * count);
    let (mut made, last) = gather(job, root, &blocks, OUTPUT, place);
    if job.rank == root {
        reduce_scratch(&mut made, job, last + 1, count);
    }
    made
}
