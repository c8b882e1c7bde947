//! Memory of peers that a transport reaches, and that looks like mapped memory.
//!
//! # Model
//!
//! A device whose streams are threads may be unable to map a peer's memory. It then reaches that memory through a
//! [`Bus`], for example by MPI windows. A peer's block has a *far* address: a name for it, in a range of addresses
//! where nothing is mapped. Arithmetic on far addresses works as on any other; dereferencing one faults. So the layers
//! above treat every rank as one that is mapped, and a stream that comes to a step with a far address leaves the step
//! to the bus.
//!
//! **Signals.** [`Bus::signal`] adds to a far word, after everything that the caller moved to or from that rank before.
//! The bus decides how. But the node that owns the word must make the addition by processor atomics, because the owner
//! also changes the word (it poisons words). For this, a word that a peer adds to, in memory from [`Bus::alloc`], lies
//! at the beginning of a cell of [`CELL`] bytes. The bytes [`MAILBOX`]`..`[`CELL`] belong to the bus, and are zero when
//! the block is made. Only one peer adds to a word.
//!
//! **Progress.** A bus rings no bells. A thread that waits for a far peer calls [`Bus::turn`], and looks again. The bus
//! completes what peers do to this rank's memory even if nobody waits.
//!
//! **Atomics.** If any peer is far, the bus makes all atomic moves to memory that came from it, because its operations
//! need not be atomic with those of processors. [`Bus::name_of`] gives the far address of memory that is mapped.
//!
//! # Failure
//!
//! A bus that fails says so for good ([`Bus::failure`]), and all ranks hear of it. Moves that were in progress may have
//! happened or not. No signal behind such a move is given.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Op, Scalar};
use crate::device::DeviceError;
use crate::memory::Ptr;

/// Bytes of the cell that a word lies in, with its operands and with what the bus keeps beside them: a cache line.
pub const CELL: usize = 64;

/// Where, in a cell, what is the bus's own begins.
pub const MAILBOX: usize = 32;

/// Why a bus carries nothing more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bus}: {detail}")]
pub struct BusError {
    /// The name of the bus.
    pub bus: &'static str,
    /// What was being done, and what was said.
    pub detail: String,
}

/// Memory of this rank that peers reach by the bus.
pub struct Span {
    /// Its first byte; ordinary memory of this process, zero, aligned to [`CELL`] at least.
    pub base: Ptr,
    /// Names it to peers' buses.
    pub key: Vec<u8>,
    /// Keeps it; what is let go may be used again when no peer holds it any more.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// Memory of a peer.
pub struct Reached {
    /// Its first byte: a far address, or an ordinary one where the memory is mapped here.
    pub base: Ptr,
    /// Keeps it.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// What one call of [`Bus::update`] does to each element.
#[derive(Clone, Copy, Debug)]
pub enum Update {
    /// `far = op(far, local)`.
    Accumulate(Op),
    /// `result = far; far = op(far, local)`.
    Fetch(Op, Ptr),
    /// `result = far; if far == compare { far = local }`, comparing bits.
    Swap {
        /// What the old values are compared with.
        compare: Ptr,
        /// Where the old values go.
        result: Ptr,
    },
}

/// One piece of a move: as many bytes, contiguous on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its far address.
    pub far: Ptr,
    /// Its address in this process.
    pub local: Ptr,
    /// How many bytes; not 0.
    pub bytes: usize,
}

/// What reaches peers' memory that is not mapped.
///
/// # Safety
///
/// Implementations keep what their methods promise; above all, a block's memory is not used again while a peer could
/// still write to it.
pub unsafe trait Bus: Send + Sync + 'static {
    /// Its name, for errors.
    fn name(&self) -> &'static str;

    /// Memory that peers reach. Collective over the ranks of the job, each with a size of its own, not 0.
    ///
    /// # Errors
    ///
    /// If there is not enough memory, or a rank has ended.
    fn alloc(&self, bytes: usize) -> Result<Span, DeviceError>;

    /// Reaches a peer's memory of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadHandle`] if the key names no such memory.
    fn reach(&self, key: &[u8], bytes: usize) -> Result<Reached, DeviceError>;

    /// The range of far addresses. It does not change.
    fn far(&self) -> Range<usize>;

    /// The far address of a place that is mapped here, if the memory came from [`Bus::alloc`], of this rank's bus or a
    /// peer's, and there is another rank.
    ///
    /// # Errors
    ///
    /// There are no far addresses left, or the bus has failed.
    fn name_of(&self, near: Ptr) -> Result<Option<Ptr>, BusError>;

    /// Why an update cannot be had, if it cannot: a reduction, or a compare-and-swap (`None`). The same on all ranks, and
    /// always the same. [`Bus::update`] is not called for it.
    fn refuses(&self, reduction: Option<Op>, scalar: Scalar) -> Option<String>;

    /// Why the bus has failed, if it has. Cheap: no more than a load while it has not.
    fn failure(&self) -> Option<BusError>;

    /// Writes pieces to one rank's memory. They have come when a signal that follows has; until that has been
    /// [given](Bus::signal), sources are not written.
    ///
    /// # Errors
    ///
    /// The bus has failed.
    ///
    /// # Safety
    ///
    /// Far addresses lie in blocks that are held; sources are live and initialised, and nobody writes them meanwhile;
    /// nobody else accesses what is written until a signal says so.
    unsafe fn put(&self, pieces: &[Piece]) -> Result<(), BusError>;

    /// Reads pieces of one rank's memory. They are there when this has returned.
    ///
    /// # Errors
    ///
    /// The bus has failed.
    ///
    /// # Safety
    ///
    /// As [`Bus::put`], the sides exchanged.
    unsafe fn get(&self, pieces: &[Piece]) -> Result<(), BusError>;

    /// Updates `count` elements that lie one after the other on all sides, each atomically with what others update
    /// through the bus. Results are there when this has returned.
    ///
    /// # Errors
    ///
    /// The bus has failed, or cannot do this with such elements.
    ///
    /// # Safety
    ///
    /// As [`Bus::put`]; the elements are aligned, and are accessed by others through buses only.
    unsafe fn update(
        &self,
        update: Update,
        scalar: Scalar,
        far: Ptr,
        local: Ptr,
        count: usize,
    ) -> Result<(), BusError>;

    /// Adds to a word of a peer (or of this rank, by a far address), after all that this caller has moved to that rank
    /// or from it before has been completed. What this rank's streams have stored to its own memory before is seen by
    /// peers that act upon the signal.
    ///
    /// # Errors
    ///
    /// The bus has failed.
    ///
    /// # Safety
    ///
    /// The word lies in a block that is held, at the beginning of a cell, and no other rank adds to it.
    unsafe fn signal(&self, word: Ptr, value: u64) -> Result<(), BusError>;

    /// Poisons a word of a peer, once what was moved has been completed. If the bus has failed, nothing happens: the peer
    /// hears of it in another way. Returns whether what was moved has been completed: else sources may still be read.
    ///
    /// # Safety
    ///
    /// As [`Bus::signal`].
    unsafe fn poison(&self, word: Ptr) -> bool;

    /// Brings a word of this rank up to date with what has come for it. Does nothing with one that does not lie at the
    /// beginning of a cell: an operand, which no peer adds to.
    ///
    /// # Safety
    ///
    /// The word is live.
    unsafe fn look(&self, word: Ptr);

    /// How often a waiter looks before it turns the bus once; not 0.
    fn looks(&self) -> u32 {
        1
    }

    /// Lets the transport do what it has to do; a thread that waits calls it again and again. Returns whether something came.
    fn turn(&self) -> bool;
}
