//! The layout that the host and the batch kernel agree on. It mirrors `kernels/batch_layout.cuh`.

pub use tidegate_hal::batch::RawTag;

use tidegate_hal::memory::Ptr;

/// Threads of a block of the batch kernel.
pub const THREADS: usize = 512;
/// The most blocks of one batch.
pub const MAX_BLOCKS: usize = 1024;
/// How many waits can be reported at a time.
pub const MAX_BLOCKED: usize = 64;

/// If several blocks carry out a lane, each but the first adds this much of an add's value. The first adds the rest.
pub const PART: u64 = 1024;
/// The most blocks of one lane. Once a word lacks at most one unit per block, all promises for it have been made: every
/// origin is resident and cannot block.
pub const MOST_BLOCKS: u64 = 255;

pub const TEAM_WARPS: u8 = 0;
pub const TEAM_BLOCKS: u8 = 1;

pub const STEP_END: u16 = 0;
pub const STEP_WAIT: u16 = 1;
pub const STEP_MOVE: u16 = 2;
pub const STEP_ADD: u16 = 3;
pub const STEP_STORE: u16 = 4;
pub const STEP_CHECK: u16 = 5;

/// The most vectors of a lane that lands and reduces.
pub const MOST_VECTORS: usize = 66;

pub const ADD_HAS_WAITER: u32 = 1;
pub const MOVE_EARLY: u32 = 1;
pub const MOVE_LAST_PARITY: u32 = 2;
pub const MOVE_BEHIND: u32 = 4;
pub const MOVE_ALONE: u32 = 8;

pub const SHAPE_LINEAR: u8 = 0;
pub const SHAPE_STRIDED: u8 = 1;
pub const SHAPE_INDEXED: u8 = 2;

// The action 0 is a copy.
pub const ACTION_ACCUMULATE: u8 = 1;
pub const ACTION_FETCH: u8 = 2;
pub const ACTION_SWAP: u8 = 3;
pub const ACTION_COUNTED: u8 = 4;
pub const ACTION_REDUCE: u8 = 5;

// The other operations have the numbers of `Op`. The new value of these comes first.
pub const OP_MIN_BEFORE: u8 = 9;
pub const OP_MAX_BEFORE: u8 = 10;

/// Bytes of a line, the widest unit.
pub const LINE: u64 = 16;

pub const FAULT_WAIT: u32 = 1;
pub const FAULT_COUNT: u32 = 3;

/// The head of a block's record, which says what the block does. The block's lanes follow it, and then their names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub team: u8,
    pub lanes: u8,
    pub unused: u16,
    /// In a team of blocks: the number of this block.
    pub index: u16,
    /// In a team of blocks: the number of blocks.
    pub count: u16,
    /// The number of the batch, for stamps. 0: nothing is stamped.
    pub batch: u64,
}

/// The name of a lane in stamps: its number in the batch, and the number of its first leg. The names of a block's lanes
/// follow the lanes.
pub const fn lane_name(lane: usize, leg: u32) -> u32 {
    // A block has at most 32 warps, and a batch at most `MAX_BLOCKS` blocks.
    lane as u32 | leg << 16
}

pub const LANE_STEPS: u16 = 1;
pub const LANE_WAITS: u16 = 2;
pub const LANE_COPIES: u16 = 4;
pub const LANE_ADDS: u16 = 8;
pub const LANE_LANDS: u16 = 16;
pub const LANE_LISTED: u16 = 32;
/// With `LANE_LISTED`: the list gives the sources of units, whose targets are whole lines of 16 bytes.
pub const LANE_GATHERS: u16 = 64;
pub const LANE_COUNTED: u16 = 128;
pub const LANE_REDUCES: u16 = 256;
/// The copy reads what the wait is for. `flip` is that of `src`, and not of `dst`.
pub const LANE_BEHIND: u16 = 512;
/// A kernel has completed the target. `src` and `dst` are numbers that must be 0.
pub const LANE_CHECKS: u16 = 1024;

/// The short form of a lane.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortLane {
    pub kind: u16,
    /// For `LANE_LISTED` and `LANE_COUNTED`: bytes of a unit, as a power of two.
    pub unit: u8,
    pub unused: u8,
    /// The offset of its steps in the program, in units of 16 bytes.
    pub steps: u32,
    pub word: u64,
    pub operand: u64,
    pub quantum: u64,
    pub arrivals: u64,
    pub src: u64,
    pub dst: u64,
    pub flip: u64,
    /// The number of units. For a lane that is carried out by its steps, or falls back on them, the bytes of the steps.
    pub count: u64,
    pub out: u64,
    pub value: u64,
    /// How many bytes follow the units: fewer than 16.
    pub tail: u64,
    /// For `LANE_LANDS`: the landing. `count` is the number of bytes; `dst` and `flip` locate the slot. If it is a wait,
    /// `out` is where its lane copies the slot, or 0.
    ///
    /// For `LANE_LANDS` with `LANE_REDUCES`: `from` vectors are put, and `to` terms are combined. They are in a list,
    /// `tail` units of 16 bytes behind the beginning of the steps. The result goes to `dst`, and before that `src` is
    /// copied to `out`, unless that is 0. `value` is the type of the elements, and `unit` their size.
    pub landing: u64,
    pub landing_flip: u64,
    /// For `LANE_LISTED`: `from` and `to` are the lists of the sources and the targets. A list has four bytes for each
    /// unit, which count units from `src` or `dst`; 0 means that the units are contiguous. For `LANE_COUNTED`: `from`
    /// is the address of the number of elements, `count` the maximum, `to` the bytes of an element.
    pub from: u64,
    pub to: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    pub kind: u16,
    /// In units of 16 bytes, with the head.
    pub length: u16,
    pub flags: u32,
}

impl Head {
    /// That of a step without flags.
    pub fn of<Step>(kind: u16) -> Self {
        Head {
            kind,
            length: size_of::<Step>().div_ceil(16) as u16,
            flags: 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitStep {
    pub head: Head,
    pub word: u64,
    pub operand: u64,
    pub quantum: u64,
    pub arrivals: u64,
    pub tag: RawTag,
    pub slot: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AddStep {
    pub head: Head,
    pub word: u64,
    pub value: u64,
    /// The address at which a word of the host is counted; 0 if the add goes to the word directly.
    pub count: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStep {
    pub head: Head,
    pub to: u64,
    pub value: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckStep {
    pub head: Head,
    /// The address of the number.
    pub count: u64,
    pub most: u64,
    pub tag: RawTag,
    pub unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MoveStep {
    pub head: Head,
    /// The number of units. For a reduction, the number of lines, behind which come `result` elements.
    pub count: u64,
    pub src: u64,
    pub dst: u64,
    pub src_flip: u64,
    pub dst_flip: u64,
    pub parity: u64,
    pub result: u64,
    pub compare: u64,
    /// Bytes of an element.
    pub size: u32,
    /// Units of an element. For a reduction, the number of terms that follow instead of shapes.
    pub sub: u32,
    pub action: u8,
    pub op: u8,
    pub scalar: u8,
    /// Bytes of a unit, as a power of two.
    pub unit: u8,
    pub src_shape: u8,
    pub dst_shape: u8,
    /// If this is the first copy of a row: how many copies the row has, which warps make side by side. Otherwise 0.
    pub row: u16,
}

/// A side that is not linear. It follows its move.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ShapeStep {
    pub table: u64,
    pub rank: u32,
    pub count: [u32; 5],
    pub stride: [i32; 5],
    pub unused: u32,
}

/// A term with which a reduction combines an element.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TermStep {
    pub src: u64,
    pub flip: u64,
    /// Like a move's.
    pub parity: u64,
    pub op: u32,
    /// Whether the parity is that of the lane's last wait.
    pub last: u32,
}

/// A vector of a lane that lands and reduces: one that it puts, or a term.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vector {
    /// Those of its wait. A vector of this rank that is only combined has none.
    pub word: u64,
    pub operand: u64,
    /// What is put; or the vector or slot that is combined.
    pub src: u64,
    pub flip: u64,
    pub landing: u64,
    pub landing_flip: u64,
    pub op: u16,
    /// Where its wait is, in units of 16 bytes from the lane's steps.
    pub wait: u16,
    /// Only the kernel uses these.
    pub by_word: u16,
    pub lacks: u16,
    pub from: u64,
}

/// Why a stream has failed. It has not if `kind` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawFault {
    pub kind: u32,
    pub tag: RawTag,
    /// For `FAULT_COUNT`, the number that is too great.
    pub epoch: u64,
}

/// A stream's state in device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Bit 0: a team has failed; bit 1: `fault` says why; bits 8 to 15: the host has ended the stream.
    pub stop: u32,
    pub unused: u32,
    pub fault: RawFault,
    pub stamps: StampState,
}

/// The part of a stream's state for its stamps. Only the stamped kernel uses it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StampState {
    /// The address of the ring. 0: there is none.
    pub ring: u64,
    /// How many stamps the ring holds.
    pub slots: u64,
    pub head: u64,
    pub taken: u64,
    pub dropped: u64,
    pub telling: u64,
}

/// The head of a ring of stamps, in pinned memory. `kernels/batch_stamps.cuh` explains it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RingHead {
    pub taken: u64,
    pub unused: [u64; 15],
    pub dropped: u64,
    pub unused2: [u64; 15],
}

/// A stamp in the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawStamp {
    pub batch: u64,
    /// The number of the lane, and above it, from bit 32 on, that of the leg.
    pub leg: u64,
    pub epoch: u64,
    pub begun: u64,
    pub satisfied: u64,
    pub moved: u64,
    pub ended: u64,
    /// The stamp's position, plus 1. It is written last.
    pub number: u64,
}

/// A wait that takes long.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawBlocked {
    pub active: u32,
    pub tag: RawTag,
    pub epoch: u64,
    pub unused: u64,
}

/// The part of a stream's state that the host reads at any time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mirror {
    pub failed: u32,
    /// The gate that the stream has come to. The kernel does not use it.
    pub gate: u32,
    pub fault: RawFault,
    pub blocked: [RawBlocked; MAX_BLOCKED],
}

/// The parameter of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchParameter {
    pub program: u64,
    pub state: u64,
    pub mirror: u64,
    pub follow: [u64; 2],
    /// Bytes of a record.
    pub stride: u32,
    pub flags: u32,
}

impl LaunchParameter {
    /// The parameter without a program.
    pub const NONE: Self = LaunchParameter {
        program: 0,
        state: 0,
        mirror: 0,
        follow: [0; 2],
        stride: 0,
        flags: 0,
    };
}

/// The next launch on the stream may begin while this one waits. Without this flag, it may begin when no block waits
/// any more.
pub const LAUNCH_NEXT: u32 = 1;

/// Types that a program is made of.
///
/// # Safety
///
/// The type has no padding, and any bytes are a valid value.
pub unsafe trait Plain: Copy {
    fn bytes(&self) -> &[u8] {
        // SAFETY: without padding, all bytes are initialised.
        unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<u8>(), size_of::<Self>())
        }
    }
}

/// Adds a part of a program, and zeros up to a border of 16 bytes.
pub fn push(part: &impl Plain, to: &mut Vec<u8>) {
    to.extend_from_slice(part.bytes());
    to.resize(to.len().next_multiple_of(16), 0);
}

/// The step at the beginning of `bytes`.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> T {
    assert!(bytes.len() >= size_of::<T>(), "steps are whole");
    // SAFETY: `bytes` is long enough, and any bytes are a valid step.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

pub(crate) fn address(ptr: Ptr) -> u64 {
    ptr.0.addr() as u64
}

macro_rules! plain {
    ($($ty:ty: $size:literal;)*) => {$(
        // SAFETY: the fields add up to the size, which is also the kernel's.
        unsafe impl Plain for $ty {}
        const _: () = assert!(size_of::<$ty>() == $size);
    )*};
}

plain! {
    Record: 16;
    ShortLane: 128;
    Head: 8;
    WaitStep: 56;
    AddStep: 32;
    StoreStep: 24;
    CheckStep: 40;
    MoveStep: 88;
    ShapeStep: 56;
    TermStep: 32;
    Vector: 64;
    State: 80;
    StampState: 48;
    RingHead: 256;
    RawStamp: 64;
    RawFault: 24;
    LaunchParameter: 48;
}

const _: () = assert!(size_of::<Mirror>() == 32 + 32 * MAX_BLOCKED);
