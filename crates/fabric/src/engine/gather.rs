//! What lies in many short stretches here and in one there, gathered into one operation, or scattered after it.
//!
//! # Model
//!
//! A strided put would be an operation for each stretch, and what an operation costs is what some KiB cost to copy. So
//! short stretches that follow each other at the target are one piece, made of *rows*. When it is posted its bytes are
//! copied to a *buffer*, and go from there; the buffer is lent until the operation is over. A get's bytes come to one,
//! and are copied from there when they have come. Hardware that fires by itself has nobody who could copy: its pieces are
//! single stretches.
//!
//! # Failure
//!
//! What is lent is bounded: beyond that, a piece waits as it does for a wire that is full. When the wire breaks, what is
//! lent stays until it is closed.

use std::collections::HashMap;
use std::mem::MaybeUninit;

use tidegate_hal::nic::{Direction, Prepared};

use super::program::{Script, script};
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
    at: *mut u8,
    bytes: usize,
    step: isize,
    count: usize,
}

// SAFETY: the pointer is only used by whoever holds the engine; what it points to may be accessed by any thread, as
// `NicQueue::prepare` has it.
unsafe impl Send for Row {}
// SAFETY: as above; nothing is done with a shared row but reading its fields.
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

/// Copies `count` stretches of `N` bytes, each by so many bytes behind the one before it.
///
/// # Safety
///
/// All of them may be read, and written, and they are apart.
unsafe fn copy_each<const N: usize>(count: usize, from: (*const u8, isize), to: (*mut u8, isize)) {
    let ((mut src, by), (mut dst, on)) = (from, to);
    for _ in 0..count {
        // SAFETY: the caller's promise; arrays of bytes are aligned anywhere.
        unsafe {
            dst.cast::<[MaybeUninit<u8>; N]>()
                .write(src.cast::<[MaybeUninit<u8>; N]>().read())
        };
        (src, dst) = (src.wrapping_offset(by), dst.wrapping_offset(on));
    }
}

impl Row {
    /// Copies it to a buffer, or from there, `flip` bytes on; returns where it ends there.
    ///
    /// # Safety
    ///
    /// All of it may be read, or written; and so much of the buffer.
    unsafe fn copy(&self, direction: Direction, flip: usize, buffer: *mut u8) -> *mut u8 {
        let (row, there) = (
            (self.at.wrapping_add(flip), self.step),
            (buffer, self.bytes as isize),
        );
        let (from, to) = match direction {
            Direction::Put => ((row.0.cast_const(), row.1), there),
            Direction::Get => ((there.0.cast_const(), there.1), row),
        };
        // SAFETY: the caller's promise.
        unsafe {
            match self.bytes {
                4 => copy_each::<4>(self.count, from, to),
                8 => copy_each::<8>(self.count, from, to),
                16 => copy_each::<16>(self.count, from, to),
                bytes => {
                    for at in 0..self.count as isize {
                        let (from, to) = (
                            from.0.wrapping_offset(at * from.1),
                            to.0.wrapping_offset(at * to.1),
                        );
                        from.copy_to_nonoverlapping(to, bytes);
                    }
                }
            }
        }
        buffer.wrapping_add(self.bytes * self.count)
    }
}

/// Memory for what is gathered: its capacity. (A `Box` may not be moved while others use what is in it.)
struct Buffer(Vec<MaybeUninit<u8>>);

/// Where the bytes of a piece lie, or come to, for the post.
pub(super) struct Source {
    pub(super) address: *mut u8,
    lent: Option<Lent>,
}

// SAFETY: it points to its own buffer, or to what a piece may point to.
unsafe impl Send for Source {}

/// A buffer, and what is to be scattered from there.
struct Lent {
    buffer: Buffer,
    to: Option<Scatter>,
}

/// A piece of a firing, whose bytes are to come.
struct Scatter {
    program: Prepared,
    piece: usize,
    odd: bool,
}

/// What an engine has gathered, and has to scatter.
pub(super) struct Gathered {
    /// By cookie of the operation that uses it.
    lent: HashMap<u64, Lent>,
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

    /// Where the bytes of a program's piece lie or come to, in a firing of odd number or not: in a buffer, if it is not
    /// contiguous here. `None` while too much is lent.
    ///
    /// # Safety
    ///
    /// Its bytes here may be read, for a put.
    pub(super) unsafe fn source<W: Wire>(
        &mut self,
        program: &Prepared,
        number: usize,
        odd: bool,
    ) -> Option<Source> {
        let script: &Script<W> = script(program);
        let piece = &script.pieces[number];
        let flip = if odd { piece.local_flip } else { 0 };
        if piece.rows.is_empty() {
            return Some(Source {
                address: piece.local.wrapping_add(flip),
                lent: None,
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
        let to = match piece.direction {
            Direction::Put => {
                // SAFETY: the caller's promise.
                unsafe { copy(script, number, odd, address) };
                None
            }
            Direction::Get => Some(Scatter {
                program: program.clone(),
                piece: number,
                odd,
            }),
        };
        Some(Source {
            address,
            lent: Some(Lent { buffer, to }),
        })
    }

    /// The operation with that cookie uses it, until it is [`over`](Self::over).
    pub(super) fn lend(&mut self, cookie: u64, source: Source) {
        if let Some(lent) = source.lent {
            self.out += lent.buffer.0.capacity();
            self.lent.insert(cookie, lent);
        }
    }

    /// The operation with that cookie is over: what it has got is scattered.
    ///
    /// # Safety
    ///
    /// Where a get's bytes go may be written still, if it has not `failed`.
    pub(super) unsafe fn over<W: Wire>(&mut self, cookie: u64, failed: bool) {
        if self.lent.is_empty() {
            return;
        }
        let Some(Lent { mut buffer, to }) = self.lent.remove(&cookie) else {
            return;
        };
        if let Some(to) = to.filter(|_| !failed) {
            let script: &Script<W> = script(&to.program);
            let from = buffer.0.as_mut_ptr().cast();
            // SAFETY: the caller's promise; the operation has filled the buffer.
            unsafe { copy(script, to.piece, to.odd, from) };
        }
        self.out -= buffer.0.capacity();
        if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
    }
}

/// Copies the rows of a piece to a buffer, or from there.
///
/// # Safety
///
/// What a put reads here may be read, what a get writes may be written; the buffer has as many bytes as the piece, which
/// are as many as those of its rows (see [`add`] and who calls it).
unsafe fn copy<W: Wire>(script: &Script<W>, number: usize, odd: bool, buffer: *mut u8) {
    let piece = &script.pieces[number];
    let flip = if odd { piece.local_flip } else { 0 };
    let mut at = buffer;
    for row in &script.rows[piece.rows.clone()] {
        // SAFETY: the caller's promise.
        at = unsafe { row.copy(piece.direction, flip, at) };
    }
}
