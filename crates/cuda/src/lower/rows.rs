//! Copies that warps make beside each other.
//!
//! # Model
//!
//! Several copies that have [lists](super::lists) are one. Of others, the blocks of a lane make its moves one after the
//! other, each block its share of every move; so each move waits for what it fetches. Of many short copies that is nearly all the time that they take. So copies of which several stand
//! *in a row* are dealt to the warps of all blocks instead, as many warps to each. That is of use for short ones, whatever
//! is before or behind the whole units of them (a step each), and for long ones that are about as long as each other:
//! one that is much longer than the others would have too few warps, so it ends the row.

use super::layout::{Head, MoveStep, Plain, STEP_MOVE};
use super::read;

/// From so many on it pays.
pub(super) const ROW: usize = 4;

/// Units of a copy that is short: its warps fetch it at once, or nearly.
pub(super) const SHORT: u64 = 512;

/// Marks the first copy of each row. The steps are those of a lane of blocks.
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

/// Copies of one length of steps, one after the other.
#[derive(Default)]
struct Row {
    /// Where the first stands.
    first: usize,
    length: u16,
    copies: u16,
    /// Units of the shortest, and of the longest.
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

    /// With one copy more, if it fits: whoever looks for it steps by the length of the first.
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
