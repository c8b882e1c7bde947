//! The collectives, and what each of them makes of the numbers of all ranks.

use clap::ValueEnum;

/// A collective. The root is rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Kind {
    /// No data.
    Barrier,
    /// The vector of the root to all.
    Broadcast,
    /// The sum of all vectors to the root.
    Reduce,
    /// The sum of all vectors to all.
    AllReduce,
    /// A block of each rank to the root.
    Gather,
    /// A block of the root's to each rank.
    Scatter,
    /// A block of each rank to all.
    AllGather,
    /// A block of the sum to each rank.
    ReduceScatter,
    /// A block of each rank to each rank.
    AllToAll,
    /// The sum of the vectors of the ranks up to each rank.
    Scan,
    /// Rows of each rank to each rank, as many as only the stream knows, and back.
    DispatchCombine,
}

/// Numbers are below this. Sums of them are exact as long as they stay below 2^24.
const MOST: u32 = 16;

/// What is in an output before: no number, and no sum of numbers.
const EMPTY: f32 = -1.0;

/// A number that tells rank, place and turn apart. Turns are what changes the data.
fn number(rank: usize, at: usize, turn: u32) -> f32 {
    let mixed = (at as u32).wrapping_mul(0x9e37_79b1) ^ (rank as u32 + 1).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ turn.wrapping_mul(0xc2b2_ae35)).wrapping_mul(0x27d4_eb2f);
    ((mixed >> 15) % MOST) as f32
}

fn vector(rank: usize, first: usize, count: usize, turn: u32) -> Vec<f32> {
    let all = first..first + count;
    all.map(|at| number(rank, at, turn)).collect()
}

/// The rows of blocks of `count` elements: how many a block has room for, and the elements of a row, at most 4 KiB.
pub(super) fn rows(count: usize) -> (usize, usize) {
    let most = (count / 16).clamp(1, 1024);
    let width = (1..=most).rev().find(|width| count.is_multiple_of(*width));
    let width = width.expect("1 divides all");
    (count / width, width)
}

/// How many rows a rank sends to another: a quarter to three quarters of a block, so half of it on average.
fn sent(from: usize, to: usize, most: usize) -> usize {
    let mixed =
        (from as u32 + 1).wrapping_mul(0x85eb_ca6b) ^ (to as u32 + 1).wrapping_mul(0x9e37_79b1);
    most / 4 + (mixed.wrapping_mul(0x27d4_eb2f) >> 15) as usize % (most / 2 + 1)
}

/// How many rows a rank sends to each rank, with blocks of `count` elements.
pub(super) fn all_sent(rank: usize, ranks: usize, count: usize) -> Vec<u64> {
    let (most, _) = rows(count);
    (0..ranks).map(|to| sent(rank, to, most) as u64).collect()
}

/// Sets the rows of `rank` beyond the numbers that it sends to what is in an output before. `left` has a block of
/// `count` elements for each rank.
pub(super) fn clear_unsent(rank: usize, count: usize, left: &mut [f32]) {
    let (most, width) = rows(count);
    for (to, block) in left.chunks_mut(count).enumerate() {
        block[sent(rank, to, most) * width..].fill(EMPTY);
    }
}

impl Kind {
    /// As on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("none is skipped");
        value.get_name().to_owned()
    }

    /// The elements of a rank's input and output, for blocks or vectors of `count` elements.
    pub(super) fn lengths(self, rank: usize, ranks: usize, count: usize) -> (usize, usize) {
        let all = ranks * count;
        let at_root = |len: usize| if rank == 0 { len } else { 0 };
        match self {
            Kind::Barrier => (0, 0),
            Kind::Broadcast | Kind::Reduce | Kind::AllReduce | Kind::Scan => (count, count),
            Kind::Gather => (count, at_root(all)),
            Kind::Scatter => (at_root(all), count),
            Kind::AllGather => (count, all),
            Kind::ReduceScatter => (all, count),
            Kind::AllToAll | Kind::DispatchCombine => (all, all),
        }
    }

    /// What a rank brings in a turn: its input, and what is in the output before.
    ///
    /// A broadcast has only the output. So has a reduction to the root as this library does it, and there the output is
    /// the rank's own vector.
    pub(super) fn brings(
        self,
        rank: usize,
        ranks: usize,
        count: usize,
        turn: u32,
    ) -> [Vec<f32>; 2] {
        let (input, output) = self.lengths(rank, ranks, count);
        let own = || vector(rank, 0, input, turn);
        let before = match self {
            Kind::Broadcast if rank == 0 => own(),
            Kind::Reduce => own(),
            _ => vec![EMPTY; output],
        };
        [own(), before]
    }

    /// What a rank has after so many calls.
    pub(super) fn leaves(
        self,
        rank: usize,
        ranks: usize,
        count: usize,
        turn: u32,
        calls: u64,
    ) -> Vec<f32> {
        let sum = |of: std::ops::Range<usize>, first: usize| {
            let mut sum = vec![0.0; count];
            for rank in of {
                let one = vector(rank, first, count, turn);
                sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
            }
            sum
        };
        let blocks = |first: usize| {
            let each = (0..ranks).flat_map(|other| vector(other, first, count, turn));
            each.collect::<Vec<_>>()
        };
        match self {
            Kind::Barrier => Vec::new(),
            Kind::Broadcast => vector(0, 0, count, turn),
            // Each call adds the vectors of the others.
            Kind::Reduce => {
                let mut own = vector(rank, 0, count, turn);
                if rank == 0 {
                    let others = sum(1..ranks, 0);
                    let add = |(own, others): (&mut f32, f32)| *own += others * calls as f32;
                    own.iter_mut().zip(others).for_each(add);
                }
                own
            }
            Kind::AllReduce => sum(0..ranks, 0),
            Kind::Gather if rank != 0 => Vec::new(),
            Kind::Gather | Kind::AllGather => blocks(0),
            Kind::Scatter => vector(0, rank * count, count, turn),
            Kind::ReduceScatter => sum(0..ranks, rank * count),
            Kind::AllToAll => blocks(rank * count),
            Kind::Scan => sum(0..rank + 1, 0),
            // Each row is back where it was. The others were never sent.
            Kind::DispatchCombine => {
                let mut left = vector(rank, 0, ranks * count, turn);
                clear_unsent(rank, count, &mut left);
                left
            }
        }
    }

    /// How often a call may be repeated until its numbers are not exact any more.
    pub(super) fn most_calls(self, ranks: usize) -> u64 {
        match self {
            Kind::Reduce => (1 << 24) / u64::from(MOST) / ranks as u64,
            _ => u64::MAX,
        }
    }

    /// The bytes that nccl-tests divides by the time, and the factor that makes the bandwidth of the bus of that: the
    /// share of the bytes that goes through the busiest link.
    pub(super) fn bytes(self, ranks: usize, block: usize) -> (usize, f64) {
        let (all, n) = (ranks * block, ranks as f64);
        match self {
            Kind::Barrier => (0, 0.0),
            Kind::Broadcast | Kind::Reduce | Kind::Scan => (block, 1.0),
            Kind::AllReduce => (block, 2.0 * (n - 1.0) / n),
            Kind::Gather
            | Kind::Scatter
            | Kind::AllGather
            | Kind::ReduceScatter
            | Kind::AllToAll => (all, (n - 1.0) / n),
            // Half of all, on average, and back.
            Kind::DispatchCombine => (all, (n - 1.0) / n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that go whole bring all rows back. Without those that were not sent, they are what is expected.
    #[test]
    fn blocks_that_went_whole_are_compared_without_the_rest() {
        let (ranks, count) = (2, 128);
        for rank in 0..ranks {
            let [mut whole, _] = Kind::DispatchCombine.brings(rank, ranks, count, 1);
            let expected = Kind::DispatchCombine.leaves(rank, ranks, count, 1, 1);
            assert_ne!(whole, expected);
            clear_unsent(rank, count, &mut whole);
            assert_eq!(whole, expected);
        }
    }

    #[test]
    fn what_ranks_bring_and_get() {
        for kind in Kind::value_variants() {
            for ranks in [1, 2, 3, 8] {
                for rank in 0..ranks {
                    let (input, output) = kind.lengths(rank, ranks, 5);
                    let [x, y] = kind.brings(rank, ranks, 5, 1);
                    let left = kind.leaves(rank, ranks, 5, 1, 1);
                    assert_eq!((x.len(), y.len()), (input, output), "{kind:?}");
                    assert_eq!(left.len(), output, "{kind:?}");
                    // Other data shows, and so does nothing at all. One rank may have what it gets already.
                    if !left.is_empty() && ranks > 1 {
                        assert_ne!(left, kind.leaves(rank, ranks, 5, 2, 1));
                        let had = kind.brings(rank, ranks, 5, 1)[1] == left;
                        assert_eq!(
                            had,
                            rank == 0 && *kind == Kind::Broadcast
                                || rank != 0 && *kind == Kind::Reduce
                        );
                    }
                }
            }
        }
        let two = [Kind::AllReduce, Kind::AllGather].map(|kind| kind.bytes(4, 8));
        assert_eq!(two, [(8, 1.5), (32, 0.75)]);
    }
}
