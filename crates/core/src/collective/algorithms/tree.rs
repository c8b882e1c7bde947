//! Algorithms that take a logarithm of rounds.

use super::super::schedule::{Buffer, From, Job, Schedule, Spot};
use super::direct::{OUTPUT, SCRATCH, only};
use super::levels;

/// How many subtrees a rank divides its ranks into at each level, its own included. With at most so many ranks, the root
/// sends to all of them.
const FAN: usize = 8;

/// A broadcast. Each rank gets every piece from its parent, and then sends it to its children while it gets the next.
pub(super) fn broadcast(job: &Job, root: usize, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let (parent, children) = levels::family(job, root, |place, ranks| family(place, ranks, FAN));
    let turns = children.len().div_ceil(job.peers).max(1);
    for (step, (first, count)) in job.pieces(count).enumerate() {
        let mut stage = step * turns;
        if let Some(parent) = parent {
            made.take_at(stage, only(parent), OUTPUT.plus(first), count);
            stage += turns;
        }
        for (number, child) in children.iter().enumerate() {
            let (stage, to) = (stage + number / job.peers, only(*child));
            made.send_at(stage, to, OUTPUT.plus(first), count);
        }
    }
    made
}

/// The parent and the children of a place in the tree. The parent has one digit fewer that is not zero, with the base
/// `fan`. The children with the most descendants come first.
fn family(place: usize, ranks: usize, fan: usize) -> (Option<usize>, Vec<usize>) {
    let mut unit = 1;
    while place.is_multiple_of(fan * unit) && unit < ranks {
        unit *= fan;
    }
    let parent = (place != 0).then(|| place - (place / unit % fan) * unit);
    let mut children = Vec::new();
    while unit > 1 {
        unit /= fan;
        let digits = (1..fan).map(|digit| place + digit * unit);
        children.extend(digits.take_while(|child| *child < ranks));
    }
    (parent, children)
}

/// Gathers the vectors of all ranks into the scratch buffer: first this rank's, then those of the ranks behind it.
/// (Bruck's algorithm: in each round, a rank gets as many vectors as it has.) Returns the schedule, and its last stage.
fn gather_into_scratch(job: &Job, own: Spot, count: usize) -> (Schedule, usize) {
    let mut made = Schedule::default();
    made.needs_scratch(job.ranks * count);
    made.copy_beside(0, own, SCRATCH, count);
    let (mut have, mut stage) = (1, 1);
    while have < job.ranks {
        let more = have.min(job.ranks - have);
        made.send_at(stage, only(job.before(have)), SCRATCH, more * count);
        let to = SCRATCH.plus(have * count);
        made.take_at(stage, only(job.after(have)), to, more * count);
        have += more;
        stage += 1;
    }
    (made, stage - 1)
}

/// All ranks get the vectors of all ranks.
pub(super) fn all_gather(job: &Job, input: Buffer, count: usize) -> Schedule {
    let own = match input {
        Buffer::Input => 0,
        _ => job.rank * count,
    };
    let (mut made, last) = gather_into_scratch(job, Spot::new(input, own), count);
    // The scratch buffer begins with this rank's vector, and the output with that of rank 0.
    let behind = job.ranks - job.rank;
    made.copy_behind(
        last + 1,
        From::Spot(SCRATCH),
        OUTPUT.plus(job.rank * count),
        behind * count,
    );
    let from = From::Spot(SCRATCH.plus(behind * count));
    made.copy_behind(last + 1, from, OUTPUT, job.rank * count);
    made
}

/// Each rank gathers all vectors, and reduces them.
pub(super) fn all_reduce(job: &Job, input: Buffer, count: usize) -> Schedule {
    let (mut made, last) = gather_into_scratch(job, Spot::new(input, 0), count);
    let vector = |rank: usize| {
        let at = (rank + job.ranks - job.rank) % job.ranks;
        From::Spot(SCRATCH.plus(at * count))
    };
    let vectors: Vec<_> = (0..job.ranks).map(vector).collect();
    made.fold_behind(last + 1, &vectors, OUTPUT, count);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_reaches_each_rank_once() {
        for ranks in 1..200 {
            for fan in [2, 3, 8] {
                let mut parents = vec![None; ranks];
                for place in 0..ranks {
                    for child in family(place, ranks, fan).1 {
                        assert_eq!(parents[child].replace(place), None, "{child} of {ranks}");
                    }
                }
                for (place, parent) in parents.into_iter().enumerate() {
                    assert_eq!(parent, family(place, ranks, fan).0);
                    assert!(parent.is_none_or(|parent| parent < place));
                    assert_eq!(parent.is_none(), place == 0);
                }
            }
        }
    }
}
