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

use std::fs::File;
use std::os::unix::fs::FileExt;

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
        /// How long other threads had its processor meanwhile: see [`lost`].
        lost: u64,
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

thread_local! {
    static SCHEDULED: Option<File> = File::open("/proc/thread-self/schedstat").ok();
}

/// How many nanoseconds the calling thread could have run, and did not because other threads had the processors: all
/// since it began. 0 where the system does not tell.
///
/// The first call of a thread opens a file, which stays open as long as the thread lives.
pub fn lost() -> u64 {
    let read = |file: &Option<File>| {
        let mut text = [0; 64];
        let length = file.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    if cfg!(miri) {
        return 0;
    }
    // A thread that ends has closed the file.
    SCHEDULED.try_with(read).ok().flatten().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that never rest share one processor.
    #[test]
    #[cfg_attr(miri, ignore = "it is about processors")]
    fn a_thread_loses_time_to_another() {
        let one = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| one.is_set(*cpu));
        let mut set = rustix::thread::CpuSet::new();
        set.set(first.unwrap());
        let stop = std::sync::atomic::AtomicBool::new(false);
        let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rustix::thread::sched_setaffinity(None, &set).unwrap();
                while !stopped() {}
            });
            let loses = scope.spawn(|| {
                rustix::thread::sched_setaffinity(None, &set).unwrap();
                let before = lost();
                while lost() == before {}
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            loses.join().unwrap();
        });
    }
}
