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

/// Bytes of the cell that contains a word, its operands, and the data of the bus beside them: a cache line.
pub const CELL: usize = 64;

/// The offset in a cell at which the bytes of the bus begin.
pub const MAILBOX: usize = 32;

/// Why a bus has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bus}: {detail}")]
pub struct BusError {
    /// The name of the bus.
    pub bus: &'static str,
    /// What was being done, and the error.
    pub detail: String,
}

/// Memory of this rank that peers reach through the bus.
pub struct Span {
    /// Its first byte. It is ordinary memory of this process, zero, and aligned to at least [`CELL`].
    pub base: Ptr,
    /// Names the memory to peers' buses.
    pub key: Vec<u8>,
    /// Keeps the memory. When it is dropped, the bus may use the memory again as soon as no peer holds it any more.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// Memory of a peer.
pub struct Reached {
    /// Its first byte: a far address, or an ordinary one where the memory is mapped here.
    pub base: Ptr,
    /// Keeps the memory reachable.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// The change that [`Bus::update`] makes to each element.
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

/// One piece of a move, contiguous on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its far address.
    pub far: Ptr,
    /// Its address in this process.
    pub local: Ptr,
    /// How many bytes; not 0.
    pub bytes: usize,
}

/// A transport that reaches peers' memory which is not mapped.
///
/// # Safety
///
/// Implementations keep the promises of their methods. Above all, they do not use a block's memory again while a peer
/// could still write to it.
pub unsafe trait Bus: Send + Sync + 'static {
    /// Its name, for errors.
    fn name(&self) -> &'static str;

    /// Allocates memory that peers reach. All ranks of the job call it together, each with a size of its own, not 0.
    ///
    /// # Errors
    ///
    /// If there is not enough memory, or a rank has ended.
    fn alloc(&self, bytes: usize) -> Result<Span, DeviceError>;

    /// Makes a peer's memory of `bytes` bytes reachable.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadHandle`] if the key names no such memory.
    fn reach(&self, key: &[u8], bytes: usize) -> Result<Reached, DeviceError>;

    /// The range of far addresses. It does not change.
    fn far(&self) -> Range<usize>;

    /// The far address of a place that is mapped here. `None` if the memory did not come from [`Bus::alloc`] of this
    /// rank or of a peer, or if there is no other rank.
    ///
    /// # Errors
    ///
    /// There are no far addresses left, or the bus has failed.
    fn name_of(&self, near: Ptr) -> Result<Option<Ptr>, BusError>;

    /// Why the bus cannot make an update, or `None` if it can. The update is a reduction, or a compare-and-swap if
    /// `reduction` is `None`. The answer is the same on all ranks, and never changes. [`Bus::update`] is not called for
    /// refused updates.
    fn refuses(&self, reduction: Option<Op>, scalar: Scalar) -> Option<String>;

    /// Why the bus has failed, if it has. It costs one load while it has not.
    fn failure(&self) -> Option<BusError>;

    /// Writes pieces to one rank's memory. They have arrived when a later signal to that rank has. The sources may be
    /// written again when that signal has been [given](Bus::signal).
    ///
    /// # Errors
    ///
    /// The bus has failed.
    ///
    /// # Safety
    ///
    /// Far addresses lie in blocks that are held. Sources are live and initialised, and nobody writes them meanwhile.
    /// Nobody else accesses the destinations until a signal allows it.
    unsafe fn put(&self, pieces: &[Piece]) -> Result<(), BusError>;

    /// Reads pieces of one rank's memory. They have arrived when this returns.
    ///
    /// # Errors
    ///
    /// The bus has failed.
    ///
    /// # Safety
    ///
    /// As for [`Bus::put`], with the sides exchanged.
    unsafe fn get(&self, pieces: &[Piece]) -> Result<(), BusError>;

    /// Updates `count` elements, contiguous on all sides. Each update is atomic with all other updates through the bus.
    /// The results have arrived when this returns.
    ///
    /// # Errors
    ///
    /// The bus has failed, or cannot do this with such elements.
    ///
    /// # Safety
    ///
    /// As for [`Bus::put`]. The elements are aligned, and others access them only through buses.
    unsafe fn update(
        &self,
        update: Update,
        scalar: Scalar,
        far: Ptr,
        local: Ptr,
        count: usize,
    ) -> Result<(), BusError>;

    /// Adds to a word of a peer, or of this rank by a far address. The add comes after everything that this caller has
    /// moved to or from that rank before. Peers that act upon the signal see what this rank's streams have stored to
    /// its own memory before it.
    ///
    /// # Errors
    ///
    /// The bus has failed.
    ///
    /// # Safety
    ///
    /// The word lies in a block that is held, at the beginning of a cell, and no other rank adds to it.
    unsafe fn signal(&self, word: Ptr, value: u64) -> Result<(), BusError>;

    /// Poisons a word of a peer, after everything that was moved has been completed. If the bus has failed, it does
    /// nothing: the peer hears of that in another way. Returns whether everything was completed; if not, sources may
    /// still be read.
    ///
    /// # Safety
    ///
    /// As for [`Bus::signal`].
    unsafe fn poison(&self, word: Ptr) -> bool;

    /// Adds to a word of this rank what peers have sent for it. Does nothing for an address that is not the beginning
    /// of a cell: that is an operand, to which no peer adds.
    ///
    /// # Safety
    ///
    /// The word is live.
    unsafe fn look(&self, word: Ptr);

    /// How often a waiting thread looks at its words before it turns the bus once; not 0.
    fn looks(&self) -> u32 {
        1
    }

    /// Lets the transport make progress. A thread that waits calls it again and again. Returns whether something has
    /// arrived.
    fn turn(&self) -> bool;
}
