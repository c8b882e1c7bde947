//! Scans: each rank gets the reduction of the vectors of the ranks before it.

use super::super::schedule::{Buffer, From, Job, Schedule, Spot};
use super::direct::{OUTPUT, SCRATCH, only};

/// Each rank sends its vector to all higher ranks, and reduces those of the lower ones.
pub(super) fn direct(job: &Job, input: Buffer, exclusive: bool, count: usize) -> Schedule {
    let mut made = Schedule::default();
    for (step, (first, count)) in job.pieces(count).enumerate() {
        let own = Spot::new(input, first);
        let to = OUTPUT.plus(first);
        for higher in job.rank + 1..job.ranks {
            made.send(job, step, (higher, 0), own, count);
        }
        if job.rank == 0 {
            if !exclusive && own != to {
                made.copy_beside(step, own, to, count);
            }
            continue;
        }
        let lower = 0..job.rank;
        let mut vectors: Vec<_> = lower
            .map(|other| made.receive(job, step, (other, 0), count))
            .collect();
        if !exclusive {
            let mut mine = own;
            if own == to && job.rank > 1 {
                made.needs_scratch(count);
                made.copy_beside(job.end(step), own, SCRATCH, count);
                mine = SCRATCH;
            }
            vectors.push(From::Spot(mine));
        }
        made.fold_behind(job.end(step), &vectors, to, count);
    }
    made
}

/// Each rank gets the reduction of the lower ranks from the rank before it, and sends it on with its own vector. A piece
/// is sent on while the next one comes.
pub(super) fn chain(job: &Job, input: Buffer, exclusive: bool, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let next = (job.rank + 1 < job.ranks).then(|| only(job.rank + 1));
    for (step, (first, count)) in job.pieces(count).enumerate() {
        let own = Spot::new(input, first);
        let to = OUTPUT.plus(first);
        if job.rank == 0 {
            if !exclusive && own != to {
                made.copy_beside(step, own, to, count);
            }
            if let Some(next) = next {
                made.send_at(step, next, own, count);
            }
            continue;
        }
        let before = made.receive_at(step, only(job.rank - 1), count);
        // The own part is saved where something else replaces it.
        let mut mine = own;
        if own == to && next.is_some() && exclusive {
            mine = SCRATCH;
            made.needs_scratch(count);
            made.copy_beside(step, own, mine, count);
        }
        let mut sent = to;
        if exclusive {
            made.copy_behind(step, before, to, count);
            sent = SCRATCH.plus(job.piece);
        }
        if exclusive && next.is_none() {
            continue;
        }
        if exclusive {
            made.needs_scratch(job.piece + count);
        }
        made.fold_behind(step, &[before, From::Spot(mine)], sent, count);
        if let Some(next) = next {
            made.send_at(step + 1, next, sent, count);
        }
    }
    made
}
