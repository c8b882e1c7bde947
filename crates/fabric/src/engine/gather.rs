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

/// How many bytes are lent at most, beyond one buffer for each firing, and how many free bytes are kept.
pub(super) const LENT: usize = 16 << 20;
/// How many bytes a turn copies before it stops; it finishes the piece.
const TURN: usize = 1 << 20;

/// The memory of a buffer, whose capacity is a power of two. (A `Box` may not be moved while others use its contents.)
type Room = Vec<MaybeUninit<u8>>;

/// The source of all buffers.
pub(super) struct Pool {
    shelves: Arc<Mutex<Shelves>>,
    /// How many bytes this turn has copied.
    copied: usize,
}

#[derive(Default)]
struct Shelves {
    /// Free memory, by the logarithm of its size.
    free: Vec<Vec<Room>>,
    /// Bytes of free and of lent memory.
    kept: usize,
    lent: usize,
    /// How many buffers were made.
    made: usize,
}

/// Memory of the pool, which returns there when it is dropped.
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
        // Keep the sizes that are in use now, and free those of earlier.
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

/// The memory that an operation reads or writes at this end.
pub(super) struct Source {
    pub(super) address: *mut u8,
    pub(super) lent: Option<Lent>,
}

// SAFETY: it points to its own buffer, or to memory that a piece may point to.
unsafe impl Send for Source {}

/// The buffer of an operation, and the piece to which it is scattered afterwards.
pub(super) struct Lent {
    buffer: Buffer,
    to: Option<Scatter>,
}

/// A piece of a get, whose bytes will arrive.
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

    /// How many buffers the pool has made.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        lock(&self.shelves).made
    }

    /// Begins a turn.
    pub(super) fn turn(&mut self) {
        self.copied = 0;
    }

    /// Whether this turn has copied enough.
    pub(super) fn is_spent(&self) -> bool {
        self.copied >= TURN
    }

    /// Lends a buffer. `None` while too much is lent, unless the caller has `nothing` in progress.
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

    /// Lends a buffer for a letter of so many bytes, which the caller fills. `None` while so much is lent. `nothing`
    /// says that the firing has nothing in progress.
    pub(super) fn lend(&mut self, bytes: usize, nothing: bool) -> Option<Source> {
        let mut buffer = self.buffer(bytes, nothing)?;
        self.copied += bytes;
        Some(Source {
            address: buffer.room.as_mut_ptr().cast(),
            lent: Some(Lent { buffer, to: None }),
        })
    }

    /// The memory at this end for a program's piece, in a firing with an `odd` number or not. If the piece is not
    /// contiguous here, it is a buffer. `None` if that is not possible in this turn, or while so much is lent.
    /// `nothing` says that the firing has nothing in progress.
    ///
    /// # Safety
    ///
    /// If the piece is of a put, its bytes here may be read.
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
    /// Ends a successful operation. The bytes of a get are scattered.
    ///
    /// # Safety
    ///
    /// The memory of this end to which a get goes may still be written.
    pub(super) unsafe fn came<W: Wire>(mut self) {
        if let Some(to) = self.to.take() {
            let from = self.buffer.room.as_mut_ptr().cast();
            // SAFETY: the caller's promise; the operation has filled the buffer.
            unsafe { copy::<W>(script(&to.program), to.piece, to.odd, from) };
        }
    }
}

/// Copies the rows of a piece to a buffer, or from it.
///
/// # Safety
///
/// The memory here may be read for a put, and written for a get. The buffer has as many bytes as the piece, and that is
/// the sum of its rows (see [`rows::add`](super::rows::add) and its callers).
unsafe fn copy<W: Wire>(script: &Script<W>, number: usize, odd: bool, buffer: *mut u8) {
    let piece = &script.pieces[number];
    let flip = if odd { piece.local_flip } else { 0 };
    let mut at = buffer;
    for row in &script.rows[piece.rows.clone()] {
        // SAFETY: the caller's promise.
        at = unsafe { row.copy(piece.direction, flip, at) };
    }
}
