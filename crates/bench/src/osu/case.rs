//! One measurement: its figure, and its messages.

use super::args::Test;
use std::ops::Range;

/// Puts of an epoch, for the bandwidth.
const PUTS: usize = 64;

/// One measurement: a test, with the sizes that it takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) test: Test,
    pub(super) bytes: usize,
    pub(super) iterations: u64,
}

impl Case {
    /// Iterations before the clock starts: enough to touch each page of each buffer.
    pub(super) fn ahead(&self) -> u64 {
        (self.iterations / 10).clamp(4, 100)
    }

    /// How many messages an epoch has.
    pub(super) fn puts(&self) -> usize {
        match self.test {
            Test::Bandwidth => PUTS,
            Test::Latency | Test::Allreduce => 1,
        }
    }

    /// The figure that is printed, if all iterations took so many seconds.
    pub(super) fn figure(&self, seconds: f64) -> f64 {
        match self.test {
            Test::Latency => seconds * 1e6 / (2 * self.iterations) as f64,
            Test::Allreduce => seconds * 1e6 / self.iterations as f64,
            Test::Bandwidth => {
                (self.iterations as usize * PUTS * self.bytes) as f64 / 1e6 / seconds
            }
        }
    }

    /// The bytes that a rank sends.
    pub(super) fn pattern(&self, rank: usize) -> Vec<u8> {
        pattern(rank, 0..self.bytes * self.puts())
    }

    /// Compares the bytes that `rank` has received with those that the other rank sends.
    pub(super) fn check(&self, rank: usize, at: usize, received: &[u8]) -> Result<(), String> {
        match received == pattern(1 - rank, at..at + received.len()) {
            true => Ok(()),
            false => Err(format!(
                "rank {rank}: what has come is not what was sent ({self:?})"
            )),
        }
    }
}

/// The numbers that a rank contributes to a sum, which is made in place again and again.
///
/// Each sum multiplies them by about the number of ranks. So they begin very small, and many sums are exact, or nearly so,
/// before the numbers become too large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) ranks: usize,
    pub(super) len: usize,
}

impl Numbers {
    /// The binary exponent of the first ones, and, without its sign, about that of the last ones.
    const FIRST: i32 = -950;

    /// How many sums there can be.
    pub(super) fn most(&self) -> u64 {
        let doublings = (self.ranks as f64).log2().max(1.0);
        (f64::from(2 * -Self::FIRST) / doublings) as u64
    }

    /// The numbers that a rank brings.
    pub(super) fn of(&self, rank: usize) -> Vec<f64> {
        let number = |at: usize| 1.0 + ((31 * at + 7 * rank) % 1000) as f64 / 1024.0;
        let all = (0..self.len).map(number);
        all.map(|number| number * 2f64.powi(Self::FIRST)).collect()
    }

    /// Compares the numbers that `rank` has after so many sums with the expected ones.
    pub(super) fn check(&self, rank: usize, sums: u64, found: &[f64]) -> Result<(), String> {
        let mut expected = vec![0.0; self.len];
        for rank in 0..self.ranks {
            for (sum, number) in expected.iter_mut().zip(self.of(rank)) {
                *sum += number;
            }
        }
        // The growth is divided out in two steps, since all of it is too large for a number. If the number of ranks is no
        // power of two, each sum was rounded.
        let grown = |sums: u64| (self.ranks as f64).powi(sums as i32);
        let (half, rest) = (grown(sums / 2), grown((sums - 1) / 2));
        let near = |(found, sum): (&f64, &f64)| (found / half / rest / sum - 1.0).abs() < 1e-9;
        match found.len() == self.len && found.iter().zip(&expected).all(near) {
            true => Ok(()),
            false => Err(format!(
                "rank {rank}: {sums} sums of {self:?} have come to something else"
            )),
        }
    }
}

/// A part of the bytes that a rank sends. They repeat, so that hundreds of MB are made as fast as they are copied.
pub(super) fn pattern(rank: usize, part: Range<usize>) -> Vec<u8> {
    const PERIOD: usize = 251;
    let first = part.start + 7 * rank;
    let period = (first..first + PERIOD).map(|at| (at % PERIOD) as u8 + 1);
    let mut bytes: Vec<u8> = period.collect();
    bytes.truncate(part.len());
    bytes.reserve_exact(part.len() - bytes.len());
    while bytes.len() < part.len() {
        let more = bytes.len().min(part.len() - bytes.len());
        bytes.extend_from_within(..more);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_of_one_piece() {
        let byte = |rank: usize, at: usize| ((at + 7 * rank) % 251) as u8 + 1;
        for (rank, part) in [(0, 0..0), (0, 3..40), (1, 0..1000), (1, 250..5000)] {
            let expected: Vec<_> = part.clone().map(|at| byte(rank, at)).collect();
            assert_eq!(pattern(rank, part), expected);
        }
    }

    /// In the order of the ranks, and in pairs, as an MPI may: both are near enough, also after all the sums that there can be.
    #[test]
    fn numbers_stand_being_summed_up() {
        for ranks in [1, 2, 3, 8, 100, 1024] {
            let numbers = Numbers { ranks, len: 3 };
            let all: Vec<_> = (0..ranks).map(|rank| numbers.of(rank)).collect();
            let mut forwards = vec![0.0; 3];
            let mut backwards = vec![0.0; 3];
            for at in 0..3 {
                forwards[at] = all.iter().map(|of| of[at]).sum();
                backwards[at] = all.iter().rev().map(|of| of[at]).sum();
            }
            for sums in 1..=numbers.most() {
                assert_eq!(numbers.check(0, sums, &forwards), Ok(()), "{ranks} {sums}");
                assert_eq!(numbers.check(0, sums, &backwards), Ok(()), "{ranks} {sums}");
                assert!(numbers.check(0, sums, &forwards[1..]).is_err());
                let mut wrong = forwards.clone();
                wrong[2] *= 1.0 + 0.5 / ranks as f64;
                assert!(numbers.check(0, sums, &wrong).is_err());
                for at in 0..3 {
                    forwards[at] = (0..ranks).map(|_| forwards[at]).sum();
                    backwards[at] *= ranks as f64;
                }
            }
            assert!(ranks == 1 || numbers.check(0, numbers.most(), &forwards).is_err());
        }
    }
}
