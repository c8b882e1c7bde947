//! Collectives of all kinds with random lengths: what each rank has, and what it has afterwards.

use std::ops::Range;

use super::Value;
use crate::collective::algorithms::{Counts, What};
use crate::random::Rng;
use crate::window::JointKind;

fn value(rank: usize, number: usize) -> Value {
    vec![(rank, number)]
}

/// The vector of a rank.
pub(super) fn vector(rank: usize, count: usize) -> Vec<Value> {
    (0..count).map(|number| value(rank, number)).collect()
}

/// The reduction of an element over some ranks.
fn reduced(ranks: Range<usize>, number: usize) -> Value {
    ranks.flat_map(|rank| value(rank, number)).collect()
}

/// The buffers of each rank before, and the output after.
pub(super) struct Case {
    pub(super) what: Vec<What>,
    pub(super) input: Vec<Vec<Value>>,
    pub(super) output: Vec<Vec<Value>>,
    pub(super) expected: Vec<Vec<Value>>,
    pub(super) in_place: bool,
}

/// The numbers of elements that each rank sends to each other.
pub(super) fn matrix(ranks: usize, most: usize, random: &mut Rng) -> Vec<Vec<usize>> {
    let row = |random: &mut Rng| (0..ranks).map(|_| random.below(most + 1)).collect();
    (0..ranks).map(|_| row(random)).collect()
}

pub(super) fn case(kind: JointKind, ranks: usize, most: usize, random: &mut Rng) -> Case {
    let count = random.below(most + 1);
    let several = random.once_in(2);
    let counts: Vec<_> = match several {
        true => (0..ranks).map(|_| random.below(most + 1)).collect(),
        false => vec![count; ranks],
    };
    let mut in_place = random.once_in(2);
    let each = |several: bool| match several {
        true => Counts::Each(counts.clone()),
        false => Counts::Equal(count),
    };
    let empty = |len: usize| vec![Value::new(); len];
    let all: usize = counts.iter().sum();
    let gathered: Vec<Value> = (0..ranks)
        .flat_map(|rank| vector(rank, counts[rank]))
        .collect();
    let block = |rank: usize| counts[..rank].iter().sum::<usize>()..counts[..=rank].iter().sum();
    let every = |of: &dyn Fn(usize) -> Vec<Value>| (0..ranks).map(of).collect::<Vec<_>>();
    let mut what = vec![Counts::Equal(count); ranks];
    let mut output = every(&|rank| vector(rank, count));
    let mut input = every(&|rank| vector(rank, count));
    let expected = match kind {
        JointKind::Broadcast { root } => {
            in_place = true;
            every(&|_| vector(root, count))
        }
        JointKind::Reduce { root } => {
            in_place = true;
            every(&|rank| match rank == root {
                true => (0..count).map(|number| reduced(0..ranks, number)).collect(),
                false => vector(rank, count),
            })
        }
        JointKind::AllReduce => every(&|_| (0..count).map(|it| reduced(0..ranks, it)).collect()),
        JointKind::Scan { exclusive } => {
            if !in_place {
                output = every(&|_| empty(count));
            }
            every(&|rank| match (exclusive, rank) {
                (true, 0) => output[0].clone(),
                _ => {
                    let end = rank + usize::from(!exclusive);
                    (0..count).map(|number| reduced(0..end, number)).collect()
                }
            })
        }
        JointKind::ReduceScatter => {
            in_place = false;
            input = every(&|rank| vector(rank, ranks * count));
            every(&|rank| {
                let block = rank * count..(rank + 1) * count;
                block.map(|number| reduced(0..ranks, number)).collect()
            })
        }
        JointKind::Gather { root } => {
            (in_place, what) = (false, vec![each(several); ranks]);
            input = every(&|rank| vector(rank, counts[rank]));
            output = every(&|_| empty(all));
            every(&|rank| {
                if rank == root {
                    gathered.clone()
                } else {
                    empty(all)
                }
            })
        }
        JointKind::Scatter { root } => {
            (in_place, what) = (false, vec![each(several); ranks]);
            input = every(&|rank| vector(rank, all));
            output = every(&|rank| empty(counts[rank]));
            every(&|rank| vector(root, all)[block(rank)].to_vec())
        }
        JointKind::AllGather => {
            what = vec![each(several); ranks];
            input = every(&|rank| vector(rank, counts[rank]));
            output = every(&|rank| {
                let mut output = empty(all);
                output[block(rank)].clone_from_slice(&input[rank]);
                output
            });
            every(&|_| gathered.clone())
        }
        JointKind::Counted { .. } => unreachable!("it has numbers, too: see `check_counted`"),
        JointKind::AllToAll => {
            in_place = false;
            let counts = match several {
                true => matrix(ranks, most, random),
                false => vec![vec![count; ranks]; ranks],
            };
            let column = |rank: usize| (0..ranks).map(|it| counts[it][rank]).collect::<Vec<_>>();
            if several {
                what = (0..ranks)
                    .map(|it| Counts::Pairs(counts[it].clone(), column(it)))
                    .collect();
            }
            input = every(&|rank| vector(rank, counts[rank].iter().sum()));
            output = every(&|rank| empty(column(rank).iter().sum()));
            every(&|rank| {
                let from = |other: usize| {
                    let first: usize = counts[other][..rank].iter().sum();
                    input[other][first..][..counts[other][rank]].to_vec()
                };
                (0..ranks).flat_map(from).collect()
            })
        }
    };
    Case {
        what: what
            .into_iter()
            .map(|counts| What {
                kind,
                counts,
                reduction: None,
            })
            .collect(),
        input,
        output,
        expected,
        in_place,
    }
}

pub(super) fn kinds(root: usize) -> [JointKind; 10] {
    [
        JointKind::Broadcast { root },
        JointKind::Reduce { root },
        JointKind::AllReduce,
        JointKind::Gather { root },
        JointKind::Scatter { root },
        JointKind::AllGather,
        JointKind::ReduceScatter,
        JointKind::AllToAll,
        JointKind::Scan { exclusive: false },
        JointKind::Scan { exclusive: true },
    ]
}
