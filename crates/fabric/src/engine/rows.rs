//! Stretches of memory that are gathered into one operation, or scattered after it: see [`gather`](super::gather).

use tidegate_hal::nic::Direction;
use tidegate_host::copy_row;

/// Stretches of fewer bytes are gathered, because a copy of them takes less time than an operation.
pub(super) const SHORT: usize = 4096;
/// The most bytes of a gathered piece. In a program with several pieces, one is on the wire while the next is copied.
pub(super) const PIECE: usize = 256 << 10;
/// Stretches of the same length, at a constant distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    at: *mut u8,
    bytes: usize,
    step: isize,
    count: usize,
}

// SAFETY: only the thread that holds the engine uses the pointer; by `NicQueue::prepare`, any thread may access the
// memory there.
unsafe impl Send for Row {}
// SAFETY: as above; a shared row allows no more than to read its fields.
unsafe impl Sync for Row {}

/// Adds a stretch to the rows from `first` on.
pub(super) fn add(rows: &mut Vec<Row>, first: usize, at: *mut u8, bytes: usize) {
    if let Some(row) = rows[first..].last_mut()
        && row.bytes == bytes
    {
        let last = row.at.wrapping_offset(row.step * (row.count as isize - 1));
        let step = at.addr().wrapping_sub(last.addr()) as isize;
        if row.count == 1 || step == row.step {
            (row.step, row.count) = (step, row.count + 1);
            return;
        }
    }
    rows.push(Row {
        at,
        bytes,
        step: 0,
        count: 1,
    });
}

impl Row {
    /// Copies the row to a buffer, or from it, with `flip` added to its address. Returns the end in the buffer.
    ///
    /// # Safety
    ///
    /// All of the row may be read or written, as the direction requires, and so may as many bytes of the buffer. Nobody
    /// else accesses them. Stretches that are written do not overlap each other.
    pub(super) unsafe fn copy(
        &self,
        direction: Direction,
        flip: usize,
        buffer: *mut u8,
    ) -> *mut u8 {
        let (row, there) = (
            (self.at.wrapping_add(flip), self.step),
            (buffer, self.bytes as isize),
        );
        let (from, to) = match direction {
            Direction::Put => ((row.0.cast_const(), row.1), there),
            Direction::Get => ((there.0.cast_const(), there.1), row),
        };
        // SAFETY: the caller's promise; a buffer is nobody else's.
        unsafe { copy_row(self.bytes, self.count, from, to) };
        buffer.wrapping_add(self.bytes * self.count)
    }
}
