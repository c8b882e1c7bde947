//! Algorithms in which each datum goes directly to the rank that needs it.

use super::super::schedule::{Blocks, Buffer, Job, Schedule, Slot, Spot};

const INPUT: Spot = Spot {
    buffer: Buffer::Input,
    first: 0,
};
const OUTPUT: Spot = Spot {
    buffer: Buffer::Output,
    first: 0,
};

/// All ranks get the blocks of all ranks.
pub(super) fn all_gather(job: &Job, input: Buffer, blocks: &Blocks) -> Schedule {
    let mut made = Schedule::default();
    let (mine, own) = (blocks.count(job.rank), blocks.first(job.rank));
    let source = match input {
        Buffer::Input => INPUT,
        _ => OUTPUT.plus(own),
    };
    for step in 0..job.pieces_of(blocks.longest()) {
        let (first, count) = job.piece_of(mine, step);
        // Beside the puts of the same piece, which is in the caches then.
        if input == Buffer::Input {
            let stage = step * job.turns();
            made.copy_beside(stage, INPUT.plus(first), OUTPUT.plus(own + first), count);
        }
        for other in job.others() {
            made.send(job, step, (other, 0), source.plus(first), count);
            let (first, count) = job.piece_of(blocks.count(other), step);
            let to = OUTPUT.plus(blocks.first(other) + first);
            made.take(job, step, (other, 0), to, count);
        }
    }
    made
}

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
    made.copy_beside(0, INPUT, own, blocks.count(root));
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
    made.copy_beside(0, own, OUTPUT, blocks.count(root));
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
    made.copy_beside(0, INPUT.plus(to.first(job.rank)), own, to.count(job.rank));
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

/// A broadcast of a long vector. The root deals out chunks, one to each other rank, and each of these sends its chunk to
/// the others.
pub(super) fn deal(job: &Job, root: usize, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let chunks = Blocks::split(job.ranks - 1, count);
    // The chunks belong to the ranks in the order in which they come behind the root.
    let chunk_of = |rank: usize| (rank + job.ranks - root - 1) % job.ranks;
    let steps = job.pieces_of(chunks.longest());
    for step in 0..=steps {
        let piece = |rank: usize, step: usize| {
            let chunk = chunk_of(rank);
            let (first, count) = job.piece_of(chunks.count(chunk), step);
            (OUTPUT.plus(chunks.first(chunk) + first), count)
        };
        if job.rank == root {
            for other in job.others() {
                let (from, count) = piece(other, step);
                made.send(job, step, (other, 0), from, count);
            }
            continue;
        }
        let (to, count) = piece(job.rank, step);
        made.take(job, step, (root, 0), to, count);
        if let Some(before) = step.checked_sub(1) {
            let (from, mine) = piece(job.rank, before);
            for other in job.others().filter(|other| *other != root) {
                made.send(job, step, (other, 0), from, mine);
                let (to, count) = piece(other, before);
                made.take(job, step, (other, 0), to, count);
            }
        }
    }
    made
}

/// The slot of a rank that has only one.
pub(super) fn only(rank: usize) -> Slot {
    Slot { rank, key: 0 }
}
