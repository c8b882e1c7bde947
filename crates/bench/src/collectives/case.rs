//! One measurement, and the check of its data.

use super::kind::Kind;

/// A collective of one size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// The elements of a block or vector.
    pub(super) count: usize,
    /// The calls that are timed.
    pub(super) calls: u64,
    /// The calls of a recording.
    pub(super) unroll: u64,
}

/// From so many elements on, data is made and compared once only: that takes longer than all calls.
const MANY: usize = 1 << 20;

impl Case {
    /// Calls before the clock starts.
    pub(super) fn ahead(&self) -> u64 {
        self.calls.min(10 * self.unroll)
    }

    /// How often other data is sent and compared before the clock starts.
    pub(super) fn turns(&self) -> u32 {
        if self.count * self.ranks < MANY { 3 } else { 1 }
    }

    pub(super) fn brings(&self, turn: u32) -> [Vec<f32>; 2] {
        self.kind.brings(self.rank, self.ranks, self.count, turn)
    }

    pub(super) fn lengths(&self) -> (usize, usize) {
        self.kind.lengths(self.rank, self.ranks, self.count)
    }

    /// Compares the output after so many calls with the expected one.
    pub(super) fn check(&self, turn: u32, calls: u64, found: &[f32]) -> Result<(), String> {
        if calls > self.kind.most_calls(self.ranks) {
            return Ok(());
        }
        let expected = self
            .kind
            .leaves(self.rank, self.ranks, self.count, turn, calls);
        if found == expected {
            return Ok(());
        }
        let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
        let at = wrong.unwrap_or(found.len().min(expected.len()));
        let (found, expected) = (found.get(at), expected.get(at));
        Err(format!(
            "rank {}: element {at} is {found:?}, not {expected:?}, after {calls} calls ({self:?})",
            self.rank
        ))
    }
}
