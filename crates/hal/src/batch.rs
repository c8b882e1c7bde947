//! The batch: everything that a stream does for messaging.
//!
//! # Model
//!
//! A [`Batch`] is a set of independent [`Lane`]s, and a lane is an ordered list of [`Step`]s. A device runs all lanes
//! of a batch as one work item of its stream: one kernel on a GPU, one item of the stream's thread on the host. **No
//! lane waits for another**: a lane that is blocked in a [`Wait`] must not keep a later lane from running.
//!
//! Words are 64-bit counters. They are only ever added to, and never reset. A wait compares its word with an *operand*,
//! which lies in device memory beside the word; the wait itself advances the operand. So every launch of the same batch
//! has the same arguments. A batch can therefore be recorded once, replayed, and mixed with launches that are not
//! recorded.
//!
//! # Landings
//!
//! Between two devices, data must arrive before its word is added to. That costs a journey there and back before the
//! word's own journey, which is most of the time of a small put. So a slot may have a [`Landing`]: memory in which
//! every four bytes stand beside a *tag*, the number of their epoch. A reader that finds the tag has the bytes,
//! whatever the order in which they came.
//!
//! - A move that fills a slot may write to the landing instead of the slot ([`Move::landing`]). The add behind it is
//!   then left out.
//! - The wait for the word looks at both ([`Wait::landed`]). It copies what has landed into the slot, and adds the
//!   quantum to the word itself. So once the wait is over, the word has counted its epoch, however the data came.
//! - A copy of the slot may stand behind that wait. A device may copy bytes as soon as it has found them. So if the wait
//!   fails, some bytes may have been copied.
//! - Until then the word lacks the epochs that have landed, and may already have counted *later* ones. So a wait may
//!   take the count for its own epoch only if it acquired the word and then found no tags. (An add releases what landed
//!   before it.)
//!
//! A device whose [`land_up_to`](crate::device::Device::land_up_to) is not zero promises that all of its waits look at
//! landings. Each of its moves may choose whether to use one.
//!
//! # Short reductions
//!
//! On such a device, one lane of a batch can be a whole *short reduction*. Its steps are:
//!
//! - at most [`MOST_REDUCED`] puts, each of which may land, with its wait and its add;
//! - then at most [`MOST_REDUCED`] waits for what may land, and at least one;
//! - then perhaps a copy, from memory of this device to other memory of it;
//! - then folds to one destination: one of each slot, and at most one of memory of this device.
//!
//! All of them have the same number of bytes, and linear sides that are aligned to 4. What is put, copied and folded, and
//! the destination, are [the same or apart](same_or_apart). Only the folds touch what the copy writes.
//!
//! The device may leave the slots as they were. It may make all puts together, when all targets have posted, and combine
//! elements as they come. So if a wait fails, some elements may have been combined.
//!
//! # Rings
//!
//! Between streams of the host, which pay for each cache line that crosses over, collectives have [`Ring`]s in place of
//! slots with two buffers. A device whose [`rings`](crate::device::Device::rings) says so promises to carry them out.
//! Others never see one: [`Wait::ring`] and [`Add::turn`] are `None`, and [`Move::buffers`] is 2.
//!
//! Where a target can read the origin's memory, some collectives do not send long data through a slot. The origin puts the
//! address of the data to the slot, and the target copies the data by a [`Pull`]. Then the target adds to a word, and the
//! origin waits for that ([`Awaited::Read`]).
//!
//! # Abort by value
//!
//! A high bit of a word, [`POISON`], says that nobody will add to it any more. A wait whose count has been reached
//! succeeds all the same, since what it waited for did happen. Otherwise the wait fails, and its batch with it. A batch
//! that fails, or that runs on a stream that has failed, moves nothing. Each of its remaining [`Add`]s that rings a
//! bell poisons its word instead. So failure follows the data to every rank that waits for it.
//!
//! A [`Check`] that does not pass fails its batch like such a wait.
//!
//! # Who validates what
//!
//! For every batch that it submits, core guarantees all that [`Batch::new`] lists. A device does not check it again,
//! except by `debug_assert`.

mod landings;
mod lanes;
mod raw_tag;
mod words;

pub use landings::{Landed, Landing, MOST_REDUCED, same_or_apart};
pub use lanes::{Batch, Lane};
pub use raw_tag::RawTag;
pub use words::{POISON, QUANTUM};

use serde::{Deserialize, Serialize};

use crate::ids::WindowId;
use crate::memory::Ptr;
use crate::process::memory::Readable;

/// What a wait is for, or an add. Error messages and tools use it; no device looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The window, if the wait belongs to one.
    pub window: Option<WindowId>,
    /// For a wait: the rank that is expected to add to the word. For an add: the rank that waits for the word.
    pub peer: u32,
    /// What the adding rank is expected to do.
    pub awaited: Awaited,
}

/// What a wait waits for the peer to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Awaited {
    /// The target's post that names this origin.
    Exposure,
    /// The origin's complete that names this target.
    Completion,
    /// The peer's arrival at an on-stream barrier.
    Barrier,
    /// The end of a transport's reads of a put's source.
    Ticket,
    /// The target's [`Pull`]s from this origin's memory.
    Read,
    /// Another stream of this process.
    Event,
    /// A kernel of this stream, which is to complete the peer itself. The wait for it does not block: the word is
    /// poisoned from the start.
    Kernel,
}

impl std::fmt::Display for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Awaited::Exposure => "its post",
            Awaited::Completion => "its complete",
            Awaited::Barrier => "its arrival at a barrier",
            Awaited::Ticket | Awaited::Read => "the end of its reads",
            Awaited::Event => "an event of another stream",
            Awaited::Kernel => "its completion by a kernel",
        })
    }
}

/// Waits for one of two things:
///
/// - `word - operand >= quantum`: the wait then advances the operand by `quantum`;
/// - all data has [landed](Landed) with the tag `operand / quantum + 1`: the wait then copies the data into its slot, and
///   advances both the operand and the word. Landed data counts even if the word is poisoned. (In a
///   [short reduction](self#short-reductions) the slot may stay as it was.)
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The word, in memory of this device. Others add to it.
    pub word: Ptr,
    /// The count of the word when the last wait on it was satisfied. Only this stream writes it.
    pub operand: Ptr,
    /// How much further the word must come. 0 waits for the operand itself: the wait is for a ticket.
    pub quantum: u64,
    /// For messages.
    pub tag: Tag,
    /// Where the data that the word stands for may land instead.
    pub landed: Option<Landed>,
    /// If the peer signals by a [`Ring`]: its flags, in memory of this device. The wait then looks at the flag of its
    /// epoch, and advances only the operand. The word is looked at for its poison alone.
    pub ring: Option<Ring>,
}

/// Buffers that an origin fills and its target reads in turn, each with a *flag* in front of it. The flag is a `u64`, 0
/// at first. When the data of an epoch lie in the buffer, the origin stores the epoch's number there. (Epochs count from
/// 1 here.) So one cache line can bring a few bytes together with their signal, and an origin with more than two buffers
/// runs ahead.
///
/// Each flag has one writer, so the signal is a store and not an atomic addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The flag of the first buffer, aligned to 8 bytes.
    pub flags: Ptr,
    /// The distance from one flag to the next, in bytes.
    pub stride: usize,
    /// How many buffers there are: a power of two.
    pub buffers: u32,
}

impl Ring {
    /// The flag of an epoch, numbered from 0, and what it is when the epoch's data are there.
    #[inline]
    pub fn of_epoch(self, epoch: u64) -> (Ptr, u64) {
        let turn = epoch as usize & (self.buffers as usize - 1);
        (self.flags.byte_add(turn * self.stride), epoch + 1)
    }

    /// How many buffers a target exposes at a time. It does so in each epoch whose number is a multiple of this.
    pub const fn exposed_every(self) -> u64 {
        self.buffers as u64 / 2
    }
}

/// How an [`Add`] signals towards a peer with a [`Ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Stores the flag of an epoch, with release order, and leaves the word alone. A wait of this lane has advanced the
    /// operand for the epoch.
    Flag {
        /// The flags, in the peer's memory.
        ring: Ring,
        /// The operand of that wait.
        operand: Ptr,
    },
    /// Adds only if the number of the epoch is a multiple of `epochs`. A later wait of the stream advances the operand
    /// for the epoch.
    Every {
        /// A power of two.
        epochs: u64,
        /// The operand of that wait.
        operand: Ptr,
    },
    /// Adds nothing. But if the batch fails before, it poisons the word like any other add.
    Never,
}

/// Copies data from the origin's own memory, which another process may have, to this rank's. The origin has put the
/// address to a slot. It leaves the memory alone until this rank has told it, by a later add, that the data were read. If
/// the origin fails before, it poisons the word that this rank had waited for, and only then is the memory used again. So
/// the batch fails if that word is poisoned when the data have been read.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// The origin's process.
    pub origin: Readable,
    /// Where the address lies, a `u64`, in the first buffer. It need not be aligned.
    pub address: Ptr,
    /// The distance from one buffer to the next, in bytes.
    pub flip: usize,
    /// How many buffers there are: a power of two.
    pub buffers: u32,
    /// The operand that chooses the buffer, as for a [`Move`].
    pub parity: Ptr,
    /// How many bytes behind the address the data begin.
    pub offset: usize,
    /// Where the data go.
    pub to: Ptr,
    /// How many bytes.
    pub bytes: usize,
    /// The word that says that the data are not what they should be, if it is poisoned.
    pub guard: Ptr,
    /// What this rank waited for at that word, for messages.
    pub tag: Tag,
}

/// Adds `value` to a word, after all earlier steps of its lane, with release order.
///
/// A device may add the value in several parts, and most of it before the data: a word between two multiples of
/// [`QUANTUM`] says nothing about data. If less than 256 is missing, a device may conclude that the adding rank waits for
/// nobody any more. So everybody else, NICs included, adds whole quanta to a word that is waited for by quanta.
///
/// The doorbell of a NIC is an exception. It is a word of the host that is rung in [parts](crate::nic::part), each of
/// which is added as a whole, behind its data.
#[derive(Clone, Copy, Debug)]
pub struct Add {
    /// The word, perhaps in a peer's memory.
    pub word: Ptr,
    /// What to add.
    pub value: u64,
    /// The bell of the rank that may sleep on the word. It is null if no rank sleeps on it, as for an operand of this
    /// stream.
    pub bell: Ptr,
    /// What it tells a rank, for tools: the rank that waits, and what it awaits. There is none for an add that completes
    /// nothing: to an operand of this stream, or for a part of a ring that is not the last. No device looks at it.
    pub tag: Option<Tag>,
    /// If the peer has a [`Ring`]: what takes the place of the addition.
    pub turn: Option<Turn>,
}

/// Fails the batch if a number is greater than `most`. A kernel of the same stream has written the number.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The `u64` that is checked, in memory of this device, aligned to 8 bytes.
    pub count: Ptr,
    /// The greatest number that passes.
    pub most: u64,
    /// Whose number it is, for messages: the window, and the rank that it is about.
    pub tag: Tag,
}

/// Stores 8 bytes after all earlier steps of its lane, for example to a register of a NIC, which then acts. The store
/// happens once for each execution of the batch, however many threads or blocks carry out the lane.
///
/// A device that reads memory because of the store sees what came before it, as after the release of an [`Add`]. A
/// batch that fails skips the store, and nothing replaces it. So a NIC that must hear of failures also has a word, and
/// an add to that word comes before the store.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    /// The address at which the device's streams reach it ([`map_register`](crate::device::Device::map_register));
    /// 8-byte aligned.
    pub to: Ptr,
    /// The value that is stored.
    pub value: u64,
}

/// The machine type of the elements of an arithmetic move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named by their Rust types")]
pub enum Scalar {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// A float of 16 bits, as IEEE 754 has it. Arithmetic goes by `f32`: both operands become an `f32`, and the result is
    /// rounded to the nearest number, of two equally near ones to the even one.
    F16,
    /// The upper 16 bits of an `f32`, with arithmetic as for [`Scalar::F16`].
    Bf16,
}

impl Scalar {
    /// All types.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::F16,
        Self::Bf16,
    ];

    /// Whether it is a float. Floats have no bitwise operations.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// A reduction, with MPI's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Addition. Integers wrap. Floats are rounded to the nearest, and subnormal numbers are kept, on all devices.
    Sum,
    /// Multiplication, with the rules of [`Op::Sum`].
    Prod,
    /// The lesser value, to the bit. A NaN loses against a number; of two NaNs the old one stays. If both are equal,
    /// the new value replaces the old (which matters for zeros of different sign).
    Min,
    /// The greater value, with the rules of [`Op::Min`].
    Max,
    /// Bitwise and (integers).
    BitAnd,
    /// Bitwise or (integers).
    BitOr,
    /// Bitwise exclusive or (integers).
    BitXor,
    /// The new value replaces the old.
    Replace,
    /// The old value stays (a fetch).
    Keep,
}

impl Op {
    /// All reductions; those for integers only are last.
    pub const ALL: [Self; 9] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::Replace,
        Self::Keep,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
    ];

    /// Whether it is for integers only.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor)
    }
}

/// Which elements of a side a move touches, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `count` elements, one after the other.
    Linear,
    /// A nest of loops, the first of which runs fastest: `(count, stride)` in elements. The product of the counts is
    /// the move's number of elements.
    Strided {
        /// The loops; those past `rank` are unused.
        dims: [(u32, i32); Shape::MAX_DIMS],
        /// How many loops there are, 1 to [`Shape::MAX_DIMS`].
        rank: u32,
    },
    /// The elements at the indices `table[0..count]` (`u32`, in elements). The table lies in memory of this device. It
    /// is written before the batch is submitted, and not again: a device may read it ahead of the stream's order.
    Indexed {
        /// The first entry of the table.
        table: Ptr,
    },
}

impl Shape {
    /// The deepest nest of loops.
    pub const MAX_DIMS: usize = 5;
}

/// One side of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Where element 0 of the shape lies.
    pub base: Ptr,
    /// Bytes to add to `base` in odd epochs (see [`Move::parity`]); 0 if the side has one buffer.
    pub flip: usize,
    /// Which elements, counted from `base`.
    pub shape: Shape,
}

impl Side {
    /// Elements that lie one after the other, in one buffer.
    pub const fn linear(base: Ptr) -> Self {
        Side {
            base,
            flip: 0,
            shape: Shape::Linear,
        }
    }
}

/// What a move does with the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `dst = src`.
    Copy,
    /// `dst = src`, but only the first `min(*count, move.count)` elements. A kernel of the same stream has written the
    /// count, or a peer. Both sides are linear.
    CopyUpTo {
        /// A `u64` in memory of this device, aligned to 8 bytes. It is read when the move is carried out, or earlier if
        /// [`Move::early`] allows it.
        count: Ptr,
        /// Bytes to add to `count` in odd epochs, as for a [`Side`].
        flip: usize,
    },
    /// `dst = op(dst, src)`; each element atomically if `atomic`.
    ///
    /// For an atomic element of one or two bytes, a device may swap the four aligned bytes around it. If the action is not
    /// `atomic`, it touches the element alone, because others may write the bytes beside it at the same time.
    ///
    /// Some accumulates of one lane reach each element in their order, whatever their operations are. These have linear
    /// sources, the same linear destination, and the same number of elements of one scalar. Other moves of a lane that
    /// touch the same elements keep their order only if both are atomic. The reason is that a device may spread one
    /// move over many threads, and the next over other threads.
    Accumulate {
        /// The reduction.
        op: Op,
        /// The elements' type.
        scalar: Scalar,
        /// Whether others may update the same elements meanwhile.
        atomic: bool,
    },
    /// A step of a reduction: `dst = op(dst, src)`, or `dst = op(src, dst)` if the source comes `before` the others. Both
    /// sides are linear, and the destination has one buffer. It is memory of this device that nothing else accesses
    /// meanwhile.
    ///
    /// Neighbouring folds of a lane with one destination, and the same number of elements of one scalar, reach each element
    /// in their order.
    Fold {
        /// The reduction.
        op: Op,
        /// The elements' type.
        scalar: Scalar,
        /// Whether the source is the first operand.
        before: bool,
    },
    /// `result = dst; dst = op(dst, src)`, each element atomically if `atomic`. `result` is linear.
    FetchOp {
        /// The reduction.
        op: Op,
        /// The elements' type.
        scalar: Scalar,
        /// Where the old values go.
        result: Ptr,
        /// Whether others may update the same elements meanwhile.
        atomic: bool,
    },
    /// `result = dst; if dst == compare { dst = src }`, comparing bits. `result` and `compare` are linear.
    CompareSwap {
        /// The elements' type.
        scalar: Scalar,
        /// What the old values are compared with.
        compare: Ptr,
        /// Where the old values go.
        result: Ptr,
    },
}

/// Moves `count` elements of `size` bytes from `src` to `dst`.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// What the move does.
    pub action: Action,
    /// Bytes of an element.
    pub size: u32,
    /// How many elements are moved.
    pub count: usize,
    /// Where they come from.
    pub src: Side,
    /// Where they go.
    pub dst: Side,
    /// The operand whose count of quanta is the number of this epoch; its parity chooses the buffer of a side with a
    /// `flip`. An earlier wait of this lane has advanced the operand, or a wait of an earlier batch of the stream. Null
    /// if nothing has a `flip`.
    pub parity: Ptr,
    /// Whether the source, and a count, may be read before the earlier waits of the lane, because nothing that those
    /// wait for writes them. (The source of a put belongs to the stream.) A device may then fetch them while it waits.
    pub early: bool,
    /// Where a copy may write its bytes with tags, instead of to `dst`. Then the lane's add is left out. The wait
    /// before the move determines the epoch, and the wait for the word of that add looks at the landing.
    pub landing: Option<Landing>,
    /// How many buffers a side with a `flip` has: a power of two. It is 2, except in a [`Ring`]: there, `flip` is the
    /// distance from one buffer to the next.
    pub buffers: u32,
}

/// One step of a lane.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Wait for a word.
    Wait(Wait),
    /// Fail if a number is too great.
    Check(Check),
    /// Move data.
    Move(Move),
    /// Copy data from the origin's own memory. Only devices with [rings](crate::device::Device::rings) carry it out.
    Pull(Pull),
    /// Make all earlier moves of the lane visible to every reader that sees a later add of the lane. For moves of the
    /// stream itself, the add does that anyway. The step is for transports that must be told.
    Flush,
    /// Add to a word.
    Add(Add),
    /// Store to a device's register.
    Store(Store),
}
