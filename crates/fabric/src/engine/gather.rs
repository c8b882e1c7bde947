//! What lies in many short stretches here and in one there, gathered into one operation.
//!
//! # Model
//!
//! A strided put would be an operation for each stretch, and what an operation costs is what some KiB cost to copy. So
//! short stretches that follow each other at the target are one piece, made of *rows*. When it is posted its bytes are
//! copied to a *buffer*, and go from there; the buffer is lent until the operation is over. Hardware that fires by
//! itself has nobody who could copy: its pieces are single stretches.
//!
//! # Failure
//!
//! What is lent is bounded: beyond that, a piece waits as it does for a wire that is full. When the wire breaks, what is
//! lent stays until it is closed.

use std::collections::HashMap;
use std::mem::MaybeUninit;

use super::program::{Piece, Script};
use crate::wire::Wire;

/// Stretches of fewer bytes are gathered: a copy of so many takes less time than an operation.
pub(super) const SHORT: usize = 4096;
/// The most bytes of a piece that is gathered: while the wire has it, the next is copied.
pub(super) const PIECE: usize = 256 << 10;
/// How many bytes are lent at most, if it is more than one piece.
const LENT: usize = 16 << 20;
/// How many buffers are kept for the next ones.
const SPARE: usize = 16;

/// Stretches of the same length, one as far from the next as all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    from: *const u8,
    bytes: usize,
    step: isize,
    count: usize,
}

// SAFETY: the pointer is only read from, by whoever holds the engine; what it points to may be accessed by any thread, as
// `NicQueue::prepare` has it.
unsafe impl Send for Row {}
// SAFETY: as above; nothing is done with a shared row but reading its fields.
unsafe impl Sync for Row {}

/// Adds a stretch to the rows from `first` on.
pub(super) fn add(rows: &mut Vec<Row>, first: usize, from: *const u8, bytes: usize) {
    if let Some(row) = rows[first..].last_mut()
        && row.bytes == bytes
    {
        let last = row
            .from
            .wrapping_offset(row.step * (row.count as isize - 1));
        let step = from.addr().wrapping_sub(last.addr()) as isize;
        if row.count == 1 || step == row.step {
            (row.step, row.count) = (step, row.count + 1);
            return;
        }
    }
    rows.push(Row {
        from,
        bytes,
        step: 0,
        count: 1,
    });
}

/// Copies stretches of `N` bytes.
///
/// # Safety
///
/// All of the row, `flip` bytes on, may be read, and there is room for it.
unsafe fn copy_each<const N: usize>(row: &Row, flip: usize, mut to: *mut u8) {
    let mut from = row.from.wrapping_add(flip);
    for _ in 0..row.count {
        // SAFETY: the caller's promise; arrays of bytes are aligned anywhere.
        unsafe {
            to.cast::<[MaybeUninit<u8>; N]>()
                .write(from.cast::<[MaybeUninit<u8>; N]>().read())
        };
        from = from.wrapping_offset(row.step);
        to = to.wrapping_add(N);
    }
}

impl Row {
    /// Copies it; returns where it ends there.
    ///
    /// # Safety
    ///
    /// As [`copy_each`].
    unsafe fn copy(&self, flip: usize, to: *mut u8) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.bytes {
                4 => copy_each::<4>(self, flip, to),
                8 => copy_each::<8>(self, flip, to),
                16 => copy_each::<16>(self, flip, to),
                bytes => {
                    let from = self.from.wrapping_add(flip);
                    for at in 0..self.count {
                        let from = from.wrapping_offset(self.step * at as isize);
                        from.copy_to_nonoverlapping(to.wrapping_add(at * bytes), bytes);
                    }
                }
            }
        }
        to.wrapping_add(self.bytes * self.count)
    }
}

/// Memory for what is gathered: its capacity. (A `Box` may not be moved while others use what is in it.)
struct Buffer(Vec<MaybeUninit<u8>>);

/// Where the bytes of a piece lie, for the post.
pub(super) struct Source {
    pub(super) address: *mut u8,
    buffer: Option<Buffer>,
}

// SAFETY: it points to its own buffer, or to what a piece may point to.
unsafe impl Send for Source {}

/// What an engine has gathered.
pub(super) struct Gathered {
    /// By cookie of the operation that reads it.
    lent: HashMap<u64, Buffer>,
    /// Bytes of these.
    out: usize,
    spare: Vec<Buffer>,
}

impl Gathered {
    pub(super) fn new() -> Self {
        Gathered {
            lent: HashMap::new(),
            out: 0,
            spare: Vec::new(),
        }
    }

    /// Where the bytes of a piece lie, in a firing of odd number or not: gathered, if they must be. `None` while too much
    /// is lent.
    ///
    /// # Safety
    ///
    /// The piece is the script's, and its bytes here may be read.
    pub(super) unsafe fn source<W: Wire>(
        &mut self,
        script: &Script<W>,
        piece: &Piece<W>,
        odd: bool,
    ) -> Option<Source> {
        let flip = if odd { piece.local_flip } else { 0 };
        if piece.rows.is_empty() {
            return Some(Source {
                address: piece.local.wrapping_add(flip),
                buffer: None,
            });
        }
        if !self.lent.is_empty() && self.out + piece.bytes > LENT {
            return None;
        }
        let fits = |buffer: &Buffer| buffer.0.capacity() >= piece.bytes;
        let mut buffer = match self.spare.iter().rposition(fits) {
            Some(at) => self.spare.swap_remove(at),
            // Of few sizes, so that the next piece fits where this one was.
            None => Buffer(Vec::with_capacity(piece.bytes.next_power_of_two())),
        };
        let address = buffer.0.as_mut_ptr().cast::<u8>();
        let mut to = address;
        for row in &script.rows[piece.rows.clone()] {
            // SAFETY: the caller's promise for what is read; the rows of a piece have as many bytes as the piece (see
            // `add`), and the buffer has room for so many.
            to = unsafe { row.copy(flip, to) };
        }
        Some(Source {
            address,
            buffer: Some(buffer),
        })
    }

    /// The operation with that cookie reads it, until it is [`over`](Self::over).
    pub(super) fn lend(&mut self, cookie: u64, source: Source) {
        if let Some(buffer) = source.buffer {
            self.out += buffer.0.capacity();
            self.lent.insert(cookie, buffer);
        }
    }

    /// The operation with that cookie is over.
    pub(super) fn over(&mut self, cookie: u64) {
        if !self.lent.is_empty()
            && let Some(buffer) = self.lent.remove(&cookie)
        {
            self.out -= buffer.0.capacity();
            if self.spare.len() < SPARE {
                self.spare.push(buffer);
            }
        }
    }
}
