//! Algorithms in which each datum goes directly to the rank that needs it.

use super::super::schedule::{Blocks, Buffer, Job, Schedule, Slot, Spot};

pub(super) const INPUT: Spot = Spot {
    buffer: Buffer::Input,
    first: 0,
};
pub(super) const OUTPUT: Spot = Spot {
    buffer: Buffer::Output,
    first: 0,
};
pub(super) const SCRATCH: Spot = Spot {
    buffer: Buffer::Scratch,
    first: 0,
};

/// The root gets the blocks of all ranks.
pub(super) fn gather(job: &Job, root: usize, blocks: &Blocks) -> Schedule {
    let mut made = Schedule::default();
    if job.rank != root {
        for (step, (first, count)) in job.pieces(blocks.count(job.rank)).enumerate() {
            made.send(job, step, (root, 0), INPUT.plus(first), count);
        }
        return made;
    }
    let own = OUTPUT.plus(blocks.first(root));
    made.copy_pieces_beside(job, INPUT, own, blocks.count(root));
    for other in job.others() {
        for (step, (first, count)) in job.pieces(blocks.count(other)).enumerate() {
            let to = OUTPUT.plus(blocks.first(other) + first);
            made.take(job, step, (other, 0), to, count);
        }
    }
    made
}

/// Each rank gets its block of the root's.
pub(super) fn scatter(job: &Job, root: usize, blocks: &Blocks) -> Schedule {
    let mut made = Schedule::default();
    if job.rank != root {
        for (step, (first, count)) in job.pieces(blocks.count(job.rank)).enumerate() {
            made.take(job, step, (root, 0), OUTPUT.plus(first), count);
        }
        return made;
    }
    let own = INPUT.plus(blocks.first(root));
    made.copy_pieces_beside(job, own, OUTPUT, blocks.count(root));
    for other in job.others() {
        for (step, (first, count)) in job.pieces(blocks.count(other)).enumerate() {
            let from = INPUT.plus(blocks.first(other) + first);
            made.send(job, step, (other, 0), from, count);
        }
    }
    made
}

/// Each rank gets a block from each rank.
pub(super) fn all_to_all(job: &Job, to: &Blocks, from: &Blocks) -> Schedule {
    let mut made = Schedule::default();
    let own = OUTPUT.plus(from.first(job.rank));
    let mine = INPUT.plus(to.first(job.rank));
    made.copy_pieces_beside(job, mine, own, to.count(job.rank));
    for other in job.others() {
        for (step, (first, count)) in job.pieces(to.count(other)).enumerate() {
            let spot = INPUT.plus(to.first(other) + first);
            made.send(job, step, (other, 0), spot, count);
        }
        for (step, (first, count)) in job.pieces(from.count(other)).enumerate() {
            let spot = OUTPUT.plus(from.first(other) + first);
            made.take(job, step, (other, 0), spot, count);
        }
    }
    made
}

/// The slot of a rank that has only one.
pub(super) fn only(rank: usize) -> Slot {
    Slot { rank, key: 0 }
}
