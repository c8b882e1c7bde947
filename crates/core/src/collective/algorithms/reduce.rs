//! Reductions, always in the order of the ranks.

use super::super::schedule::{Blocks, Buffer, From, Job, Schedule, Spot};
use super::direct::{INPUT, OUTPUT, SCRATCH};
use super::levels::{Part, share};

impl Schedule {
    /// At the end of a step, reduces what the other ranks have sent and the `own` part of this rank to `to`. If the own
    /// part is at `to` itself, it is saved first, unless it is one of the first two.
    fn fold(
        &mut self,
        job: &Job,
        step: usize,
        own: Spot,
        received: impl Fn(usize) -> Option<From>,
        (to, count): (Spot, usize),
    ) {
        if count == 0 {
            return;
        }
        let mut mine = own;
        if own == to && job.rank > 1 {
            self.needs_scratch(count);
            self.copy_beside(job.end(step), own, SCRATCH, count);
            mine = SCRATCH;
        }
        let vector = |rank: usize| match rank == job.rank {
            true => Some(From::Spot(mine)),
            false => received(rank),
        };
        let vectors: Vec<_> = (0..job.ranks).filter_map(vector).collect();
        self.fold_behind(job.end(step), &vectors, to, count);
    }

    /// Receives a piece from each other rank.
    fn receive_all(&mut self, job: &Job, step: usize, count: usize) -> Vec<Option<From>> {
        let mut received = vec![None; job.ranks];
        for other in job.others() {
            received[other] = Some(self.receive(job, step, (other, 0), count));
        }
        received
    }
}

/// All ranks send their vectors to the root, which reduces them.
pub(super) fn to_root(job: &Job, root: usize, count: usize) -> Schedule {
    let mut made = Schedule::default();
    for (step, (first, count)) in job.pieces(count).enumerate() {
        let spot = OUTPUT.plus(first);
        if job.rank != root {
            made.send(job, step, (root, 0), spot, count);
            continue;
        }
        let received = made.receive_all(job, step, count);
        made.fold(job, step, spot, |rank| received[rank], (spot, count));
    }
    made
}

/// All ranks send their vectors to all, and each rank reduces them.
pub(super) fn everywhere(job: &Job, input: Buffer, count: usize) -> Schedule {
    let mut made = Schedule::default();
    for (step, (first, count)) in job.pieces(count).enumerate() {
        let own = Spot::new(input, first);
        for other in job.others() {
            made.send(job, step, (other, 0), own, count);
        }
        let received = made.receive_all(job, step, count);
        let to = OUTPUT.plus(first);
        made.fold(job, step, own, |rank| received[rank], (to, count));
    }
    made
}

/// Each rank gets its block of the sum of all inputs.
pub(super) fn scatter(job: &Job, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let blocks = Blocks::equal(job.ranks, count);
    for (step, (first, _)) in job.pieces(count).enumerate() {
        let to = |_| OUTPUT.plus(first);
        chunk(&mut made, job, step, (INPUT, &blocks), to);
    }
    made
}

/// In a step, each rank reduces a piece of a chunk. `to` says where the piece goes.
fn chunk(
    made: &mut Schedule,
    job: &Job,
    step: usize,
    (input, chunks): (Spot, &Blocks),
    to: impl Fn(Spot) -> Spot,
) {
    let piece = |rank: usize| {
        let (first, count) = job.piece_of(chunks.count(rank), step);
        (input.plus(chunks.first(rank) + first), count)
    };
    for other in job.others() {
        let (from, count) = piece(other);
        made.send(job, step, (other, 0), from, count);
    }
    let (own, count) = piece(job.rank);
    let received = made.receive_all(job, step, count);
    made.fold(job, step, own, |rank| received[rank], (to(own), count));
}

/// Each rank reduces a chunk of the vector, and sends it to all. A chunk is sent while the next piece is reduced.
pub(super) fn chunks_to_all(job: &Job, input: Buffer, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let chunks = Blocks::split(job.ranks, count);
    let steps = job.pieces_of(chunks.longest());
    for step in 0..steps {
        let to = |own: Spot| OUTPUT.plus(own.first);
        chunk(&mut made, job, step, (Spot::new(input, 0), &chunks), to);
    }
    let part = Part {
        step: 1,
        pieces: steps,
        key: 1,
    };
    let piece = |rank: usize, number| {
        let (first, count) = job.piece_of(chunks.count(rank), number);
        (OUTPUT.plus(chunks.first(rank) + first), count)
    };
    let own = |number| piece(job.rank, number).0;
    share(&mut made, job, job.nodes.groups(), &part, own, piece);
    made
}

/// Each rank reduces a chunk of the vector, and sends it to the root. The vectors of the other ranks are not changed.
pub(super) fn chunks_to_root(job: &Job, root: usize, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let chunks = Blocks::split(job.ranks, count);
    let steps = job.pieces_of(chunks.longest());
    let is_root = job.rank == root;
    for step in 0..=steps {
        let to = |own| if is_root { own } else { SCRATCH };
        chunk(&mut made, job, step, (OUTPUT, &chunks), to);
        let Some(before) = step.checked_sub(1) else {
            continue;
        };
        let piece = |rank: usize| job.piece_of(chunks.count(rank), before);
        if !is_root {
            made.send(job, step, (root, 1), SCRATCH, piece(job.rank).1);
            continue;
        }
        for other in job.others() {
            let (first, count) = piece(other);
            let to = OUTPUT.plus(chunks.first(other) + first);
            made.take(job, step, (other, 1), to, count);
        }
    }
    if !is_root {
        made.needs_scratch(chunks.longest().min(job.piece));
    }
    made
}
