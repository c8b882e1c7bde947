//! Many short stretches of memory here, gathered into one operation or scattered after it.
//!
//! # Model
//!
//! A strided put would be one operation for each stretch, and an operation costs as much as copying some KiB. So short
//! stretches that follow each other at the target are one piece, made of *rows*. Before the piece is posted, its bytes
//! are copied into a *buffer*, and go from there. The bytes of a get come into a buffer, and are copied from there when
//! they have arrived. Buffers come from the engine's *pool*, and return to it when they are dropped. The operation that
//! uses a buffer holds it; so does a firing whose piece the wire has not taken yet. If hardware fires programs by
//! itself, no thread could copy, so every piece is a single stretch.
//!
//! A turn of the engine copies a bounded amount. Then it looks at the wire again.
//!
//! # Failure
//!
//! The memory of buffers is bounded. Beyond that bound, a firing that has something in progress waits. A firing that
//! has nothing gets a buffer all the same, so that no queue depends on another. When the wire breaks, the buffers of
//! operations stay until it is closed.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

use tidegate_hal::nic::{Direction, Prepared};

use super::program::{Script, script};
use crate::base::lock;
use crate::wire::Wire;

/// How many bytes are lent, beyond one buffer for each firing; and how many are kept for the next.
pub(super) const LENT: usize = 16 << 20;
/// How many bytes are copied in a turn, and a piece more.
const TURN: usize = 1 << 20;

/// Memory: its capacity, a power of two. (A `Box` may not be moved while others use what is in it.)
type Room = Vec<MaybeUninit<u8>>;

/// Where buffers come from.
pub(super) struct Pool {
    shelves: Arc<Mutex<Shelves>>,
    /// How many bytes this turn has copied.
    copied: usize,
}

#[derive(Default)]
struct Shelves {
    /// What is free, by the logarithm of its bytes.
    free: Vec<Vec<Room>>,
    /// Bytes of these, and of what is lent.
    kept: usize,
    lent: usize,
    /// How many were made.
    made: usize,
}

/// Some memory of the pool, which gets it back.
struct Buffer {
    room: Room,
    shelves: Arc<Mutex<Shelves>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let room = std::mem::take(&mut self.room);
        let bytes = room.capacity();
        let mut shelves = lock(&self.shelves);
        let Shelves {
            free, kept, lent, ..
        } = &mut *shelves;
        *lent -= bytes;
        let shelf = bytes.ilog2() as usize;
        if free.len() <= shelf {
            free.resize_with(shelf + 1, Vec::new);
        }
        // What is used now is kept, and what was used before it goes.
        let others = free.iter_mut().enumerate().filter(|(at, _)| *at != shelf);
        for (_, other) in others {
            while *kept + bytes > LENT
                && let Some(room) = other.pop()
            {
                *kept -= room.capacity();
            }
        }
        if *kept + bytes <= LENT {
            *kept += bytes;
            free[shelf].push(room);
        }
    }
}

/// Where the bytes of a piece lie, or come to, for the post.
pub(super) struct Source {
    pub(super) address: *mut u8,
    pub(super) lent: Option<Lent>,
}

// SAFETY: it points to its own buffer, or to what a piece may point to.
unsafe impl Send for Source {}

/// What an operation uses: a buffer, and what is to be scattered from there.
pub(super) struct Lent {
    buffer: Buffer,
    to: Option<Scatter>,
}

/// A piece of a firing, whose bytes are to come.
struct Scatter {
    program: Prepared,
    piece: usize,
    odd: bool,
}

impl Pool {
    pub(super) fn new() -> Self {
        Pool {
            shelves: Arc::default(),
            copied: 0,
        }
    }

    /// How many buffers it has made.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        lock(&self.shelves).made
    }

    /// A turn begins.
    pub(super) fn turn(&mut self) {
        self.copied = 0;
    }

    /// Whether this turn has copied enough.
    pub(super) fn is_spent(&self) -> bool {
        self.copied >= TURN
    }

    /// `None` while too much is lent, unless the caller has `nothing` under way.
    fn buffer(&self, bytes: usize, nothing: bool) -> Option<Buffer> {
        let bytes = bytes.next_power_of_two();
        let mut shelves = lock(&self.shelves);
        if shelves.lent + bytes > LENT && !nothing {
            return None;
        }
        let shelf = shelves.free.get_mut(bytes.ilog2() as usize);
        let room = match shelf.and_then(Vec::pop) {
            Some(room) => {
                shelves.kept -= room.capacity();
                room
            }
            None => {
                shelves.made += 1;
                Vec::with_capacity(bytes)
            }
        };
        shelves.lent += room.capacity();
        Some(Buffer {
            room,
            shelves: self.shelves.clone(),
        })
    }

    /// Where the bytes of a program's piece lie or come to, in a firing of odd number or not: in a buffer, if it is not
    /// contiguous here. `None`: not in this turn, or not while so much is lent; `nothing` of the firing is under way.
    ///
    /// # Safety
    ///
    /// Its bytes here may be read, for a put.
    pub(super) unsafe fn source<W: Wire>(
        &mut self,
        program: &Prepared,
        number: usize,
        odd: bool,
        nothing: bool,
    ) -> Option<Source> {
        let script: &Script<W> = script(program);
        let piece = &script.pieces[number];
        if piece.rows.is_empty() {
            return Some(Source {
                address: piece.at(odd),
                lent: None,
            });
        }
        if self.is_spent() && piece.direction == Direction::Put {
            return None;
        }
        let mut buffer = self.buffer(piece.bytes, nothing)?;
        let address = buffer.room.as_mut_ptr().cast::<u8>();
        let to = match piece.direction {
            Direction::Put => {
                self.copied += piece.bytes;
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
}

impl Lent {
    /// The operation is over, and has done what it was to do: what a get has got is scattered.
    ///
    /// # Safety
    ///
    /// Where a get's bytes go may be written still.
    pub(super) unsafe fn came<W: Wire>(mut self) {
        if let Some(to) = self.to.take() {
            let from = self.buffer.room.as_mut_ptr().cast();
            // SAFETY: the caller's promise; the operation has filled the buffer.
            unsafe { copy::<W>(script(&to.program), to.piece, to.odd, from) };
        }
    }
}

/// Copies the rows of a piece to a buffer, or from there.
///
/// # Safety
///
/// What a put reads here may be read, what a get writes may be written; the buffer has as many bytes as the piece, which
/// are as many as those of its rows (see [`rows::add`](super::rows::add) and who calls it).
unsafe fn copy<W: Wire>(script: &Script<W>, number: usize, odd: bool, buffer: *mut u8) {
    let piece = &script.pieces[number];
    let flip = if odd { piece.local_flip } else { 0 };
    let mut at = buffer;
    for row in &script.rows[piece.rows.clone()] {
        // SAFETY: the caller's promise.
        at = unsafe { row.copy(piece.direction, flip, at) };
    }
}
