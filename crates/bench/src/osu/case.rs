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
            Test::Latency => 1,
        }
    }

    /// The figure that is printed, if all iterations took so many seconds.
    pub(super) fn figure(&self, seconds: f64) -> f64 {
        match self.test {
            Test::Latency => seconds * 1e6 / (2 * self.iterations) as f64,
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
}
