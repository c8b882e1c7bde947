//! When each lane of a stream did what, for tools.
//!
//! # Model
//!
//! A stream that is made with [`StreamConfig::stamped`](crate::device::StreamConfig::stamped) notes the time at each
//! border of a [`Leg`], while it carries out a batch. It does so for every execution, replays included. The notes are
//! kept in a ring, from which one reader takes them ([`Stamps::take`]).
//!
//! A stream never waits for the reader. If the ring is full, the stream drops its newest stamps and counts them.
//!
//! Times are nanoseconds of the host's `CLOCK_MONOTONIC`, which all processes of a machine share. A device with a clock
//! of its own converts, and says how far it may be off ([`Stamps::clock_error`]).

/// A part of a lane: at most one wait, and the moves and adds up to the next wait.
///
/// If several blocks of a device carry out the lane, the times are those of its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Leg {
    /// [`Batch::id`](crate::batch::Batch::id) of the batch.
    pub batch: u64,
    /// The index of the lane in the batch.
    pub lane: u32,
    /// The number of the leg in its lane. It counts waits: a leg that begins with the lane is 0, whether it waits or
    /// not.
    pub leg: u32,
    /// The number of the epoch that the wait was for, from 0. 0 if the leg has no wait.
    pub epoch: u64,
    /// When the lane's turn came; of a later leg, when the leg before it ended.
    pub begun: u64,
    /// When the wait was over; `begun` if there is none.
    pub satisfied: u64,
    /// When the last move had been made, as far as the device knows; `satisfied` if there is none.
    pub moved: u64,
    /// When the last add had been made.
    pub ended: u64,
}

/// A stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stamp {
    /// A lane has come to the end of a leg.
    Leg(Leg),
    /// A kernel has run. Only devices whose kernels are functions of this process know when kernels run.
    Kernel {
        /// Its name.
        name: &'static str,
        /// When it began.
        begun: u64,
        /// When it returned.
        ended: u64,
    },
}

/// The stamps of one stream. They outlive the stream.
pub trait Stamps: Send + Sync {
    /// Takes what has been stamped since the last call. Stamps of one lane come in order, and so do batches. Returns how
    /// many stamps were dropped in all, since the stream was made.
    fn take(&self, each: &mut dyn FnMut(Stamp)) -> u64;

    /// How far a time may be from the host's clock, in nanoseconds. 0 for a device that reads the host's clock.
    fn clock_error(&self) -> u64 {
        0
    }
}

/// The time of the host's `CLOCK_MONOTONIC`, in nanoseconds.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The clock counts from the start of the machine, so neither part is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
