//! What the host and the batch kernel agree on: mirrors `kernels/batch_layout.cuh`.

/// Threads of a block of the batch kernel.
pub(crate) const THREADS: usize = 512;
/// Warps of such a block.
pub(crate) const WARPS: usize = THREADS / 32;
/// The most blocks of one batch.
pub(crate) const MAX_BLOCKS: usize = 1024;
/// How many waits can be reported at a time.
pub(crate) const MAX_BLOCKED: usize = 64;

/// What each of several blocks adds of a value, but the first, which adds what the others leave.
pub(crate) const PART: u64 = 1024;
/// The most blocks of one lane: a word that lacks no more than 1 of each has all promises.
pub(crate) const MOST_BLOCKS: u64 = 255;

pub(crate) const TEAM_WARPS: u8 = 0;
pub(crate) const TEAM_BLOCKS: u8 = 1;

pub(crate) const STEP_END: u16 = 0;
pub(crate) const STEP_WAIT: u16 = 1;
pub(crate) const STEP_MOVE: u16 = 2;
pub(crate) const STEP_ADD: u16 = 3;
pub(crate) const STEP_STORE: u16 = 4;

pub(crate) const ADD_HAS_WAITER: u32 = 1;
pub(crate) const MOVE_EARLY: u32 = 1;
pub(crate) const MOVE_LAST_PARITY: u32 = 2;
pub(crate) const MOVE_BEHIND: u32 = 4;
pub(crate) const MOVE_ALONE: u32 = 8;

pub(crate) const SHAPE_LINEAR: u8 = 0;
pub(crate) const SHAPE_STRIDED: u8 = 1;
pub(crate) const SHAPE_INDEXED: u8 = 2;

// 0 is a copy.
pub(crate) const ACTION_ACCUMULATE: u8 = 1;
pub(crate) const ACTION_FETCH: u8 = 2;
pub(crate) const ACTION_SWAP: u8 = 3;
pub(crate) const ACTION_COUNTED: u8 = 4;
pub(crate) const ACTION_REDUCE: u8 = 5;

pub(crate) const FAULT_WAIT: u32 = 1;

/// What one block is to do: the head of its record. Behind it stand its lanes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) team: u8,
    pub(crate) lanes: u8,
    pub(crate) unused: u16,
    /// A team of blocks: which of them this is.
    pub(crate) index: u16,
    /// A team of blocks: how many they are.
    pub(crate) count: u16,
    pub(crate) unused2: u64,
}

pub(crate) const LANE_STEPS: u16 = 1;
pub(crate) const LANE_WAITS: u16 = 2;
pub(crate) const LANE_COPIES: u16 = 4;
pub(crate) const LANE_ADDS: u16 = 8;
pub(crate) const LANE_LANDS: u16 = 16;
pub(crate) const LANE_LISTED: u16 = 32;
/// With `LANE_LISTED`: what is listed is where units come from, and they go to whole lines of 16 bytes.
pub(crate) const LANE_GATHERS: u16 = 64;
pub(crate) const LANE_COUNTED: u16 = 128;
pub(crate) const LANE_REDUCES: u16 = 256;

/// A lane in short.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShortLane {
    pub(crate) kind: u16,
    /// `LANE_LISTED`, `LANE_COUNTED`, `LANE_REDUCES`: bytes of a unit, as a power of two.
    pub(crate) unit: u8,
    /// `LANE_REDUCES`: the elements' type.
    pub(crate) scalar: u8,
    /// Where its steps are, in units of 16 bytes from the beginning of the program.
    pub(crate) steps: u32,
    pub(crate) word: u64,
    pub(crate) operand: u64,
    pub(crate) quantum: u64,
    pub(crate) arrivals: u64,
    pub(crate) src: u64,
    pub(crate) dst: u64,
    pub(crate) flip: u64,
    /// Units; of a lane that is carried out by its steps, their bytes.
    pub(crate) count: u64,
    pub(crate) out: u64,
    pub(crate) value: u64,
    /// So many bytes follow the units, fewer than 16.
    pub(crate) tail: u64,
    /// `LANE_LANDS`: where the bytes of a slot land; `count` is how many they are, `dst` and `flip` say where the slot is.
    pub(crate) landing: u64,
    pub(crate) landing_flip: u64,
    /// `LANE_LISTED`: where the units of either side are stands there, four bytes for each, in units from `src` and from
    /// `dst`; 0: they lie one behind the other. `LANE_COUNTED`: `from` is where the number of elements stands, `count` the
    /// most of them, `to` the bytes of one. `LANE_REDUCES`: `to` is how many terms stand behind the first step.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    pub(crate) kind: u16,
    /// In units of 16 bytes, the head included.
    pub(crate) length: u16,
    pub(crate) flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitStep {
    pub(crate) head: Head,
    pub(crate) word: u64,
    pub(crate) operand: u64,
    pub(crate) quantum: u64,
    pub(crate) arrivals: u64,
    pub(crate) window: u32,
    pub(crate) peer: u32,
    pub(crate) awaited: u32,
    pub(crate) slot: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddStep {
    pub(crate) head: Head,
    pub(crate) word: u64,
    pub(crate) value: u64,
    /// Where a word of the host is counted; 0: the word is added to itself.
    pub(crate) count: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreStep {
    pub(crate) head: Head,
    pub(crate) to: u64,
    pub(crate) value: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MoveStep {
    pub(crate) head: Head,
    /// Units.
    pub(crate) count: u64,
    pub(crate) src: u64,
    pub(crate) dst: u64,
    pub(crate) src_flip: u64,
    pub(crate) dst_flip: u64,
    pub(crate) parity: u64,
    pub(crate) result: u64,
    pub(crate) compare: u64,
    /// Bytes of an element.
    pub(crate) size: u32,
    /// Units of an element; of a reduction, how many terms stand behind it, instead of shapes.
    pub(crate) sub: u32,
    pub(crate) action: u8,
    pub(crate) op: u8,
    pub(crate) scalar: u8,
    /// Bytes that are moved at a time, as a power of two.
    pub(crate) unit: u8,
    pub(crate) src_shape: u8,
    pub(crate) dst_shape: u8,
    /// So many copies stand here, this one first, that warps make beside each other; 0: it is not the first of such.
    pub(crate) row: u16,
}

/// A side that is not linear; stands behind its move.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShapeStep {
    pub(crate) table: u64,
    pub(crate) rank: u32,
    pub(crate) count: [u32; 5],
    pub(crate) stride: [i32; 5],
    pub(crate) unused: u32,
}

/// What a reduction combines an element with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TermStep {
    pub(crate) src: u64,
    pub(crate) flip: u64,
    /// As a move's.
    pub(crate) parity: u64,
    pub(crate) op: u32,
    pub(crate) unused: u32,
}

/// Why a stream has failed. `kind` 0: it has not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawFault {
    pub(crate) kind: u32,
    pub(crate) window: u32,
    pub(crate) peer: u32,
    pub(crate) awaited: u32,
    pub(crate) epoch: u64,
}

/// A stream's state in memory of the device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// Bit 0: a team has failed; bit 1: `fault` says why; bits 8 to 15: the host has ended it.
    pub(crate) stop: u32,
    pub(crate) unused: u32,
    pub(crate) fault: RawFault,
}

/// A wait that takes long.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawBlocked {
    pub(crate) active: u32,
    pub(crate) window: u32,
    pub(crate) peer: u32,
    pub(crate) awaited: u32,
    pub(crate) epoch: u64,
    pub(crate) unused: u64,
}

/// The part of a stream's state that the host reads at any time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mirror {
    pub(crate) failed: u32,
    /// The gate that the stream has come to: not the kernel's affair.
    pub(crate) gate: u32,
    pub(crate) fault: RawFault,
    pub(crate) blocked: [RawBlocked; MAX_BLOCKED],
}

/// The parameter of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchParameter {
    pub(crate) program: u64,
    pub(crate) state: u64,
    pub(crate) mirror: u64,
    pub(crate) follow: [u64; 2],
    /// Bytes of a record.
    pub(crate) stride: u32,
    pub(crate) flags: u32,
}

impl LaunchParameter {
    /// Of no program.
    pub(crate) const NONE: Self = LaunchParameter {
        program: 0,
        state: 0,
        mirror: 0,
        follow: [0; 2],
        stride: 0,
        flags: 0,
    };
}

/// What comes next on the stream may come while this one waits; else when no block of it waits any more.
pub(crate) const LAUNCH_NEXT: u32 = 1;

/// Types that a program is made of.
///
/// # Safety
///
/// There is no padding, and any bytes are a value.
pub(crate) unsafe trait Plain: Copy {
    fn bytes(&self) -> &[u8] {
        // SAFETY: without padding, all bytes are initialised.
        unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<u8>(), size_of::<Self>())
        }
    }
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
    MoveStep: 88;
    ShapeStep: 56;
    TermStep: 32;
    State: 32;
    RawFault: 24;
    LaunchParameter: 48;
}

const _: () = assert!(size_of::<Mirror>() == 32 + 32 * MAX_BLOCKED);
