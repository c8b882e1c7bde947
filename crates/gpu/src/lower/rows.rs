//! Copies that warps make side by side.
//!
//! # Model
//!
//! Several copies with [lists](super::lists) are carried out as one. Without lists, the blocks of a lane make its moves
//! one after the other, and each block makes a part of every move. Then each move waits for the data that it fetches,
//! and many short copies spend nearly all their time on that.
//!
//! So if several copies are *in a row*, they are dealt to the warps of all blocks instead, with the same number of
//! warps for each copy. This helps short copies, with a step each for the bytes before and behind their whole units. It
//! also helps long copies of about the same length. A copy that is much longer than the others would have too few
//! warps, so it ends the row.

use super::layout::read;
use super::layout::{Head, MoveStep, Plain, STEP_MOVE};

/// The smallest number of copies for which a row pays.
pub(super) const ROW: usize = 4;

/// The most units of a short copy. Its warps fetch them at once, or nearly so.
pub(super) const SHORT: u64 = 512;

/// Marks the first copy of each row, in the steps of a lane of blocks.
pub(super) fn mark(steps: &mut [u8]) {
    let (mut at, mut row) = (0, Row::default());
    while at < steps.len() {
        let head: Head = read(&steps[at..]);
        let copy = (head.kind == STEP_MOVE)
            .then(|| read::<MoveStep>(&steps[at..]))
            .filter(|copy| copy.action == 0);
        let next = copy.map(|copy| row.and(at, head.length, copy.count));
        row = match next {
            Some(Some(longer)) => longer,
            other => {
                row.end(steps);
                let first = |copy: MoveStep| Row::of(at, head.length, copy.count);
                other.and(copy).map_or_else(Row::default, first)
            }
        };
        at += usize::from(head.length) * 16;
    }
    row.end(steps);
}

/// Consecutive copies whose steps have the same length.
#[derive(Default)]
struct Row {
    /// The offset of the first copy.
    first: usize,
    length: u16,
    copies: u16,
    /// Units of the shortest copy.
    least: u64,
    most: u64,
}

impl Row {
    fn of(first: usize, length: u16, units: u64) -> Self {
        Row {
            first,
            length,
            copies: 1,
            least: units,
            most: units,
        }
    }

    /// The row with one more copy, if it fits. The kernel finds the copies of a row by the length of the first one's
    /// step.
    fn and(&self, at: usize, length: u16, units: u64) -> Option<Self> {
        if self.copies == 0 {
            return Some(Row::of(at, length, units));
        }
        let (least, most) = (self.least.min(units), self.most.max(units));
        let even = most <= SHORT || most <= 2 * least;
        (even && length == self.length && self.copies < u16::MAX).then_some(Row {
            copies: self.copies + 1,
            least,
            most,
            ..*self
        })
    }

    fn end(&self, steps: &mut [u8]) {
        if usize::from(self.copies) < ROW {
            return;
        }
        let mut copy: MoveStep = read(&steps[self.first..]);
        copy.row = self.copies;
        steps[self.first..self.first + size_of::<MoveStep>()].copy_from_slice(copy.bytes());
    }
}
