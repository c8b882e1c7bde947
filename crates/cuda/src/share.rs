//! What streams get of a GPU, also where other processes use it: hardware queues, and blocks that may wait.
//!
//! # Model
//!
//! Three multiprocessors of four ([`SHARE`]) may have a block of a batch that waits; why that keeps a job from blocking
//! itself stands in [`crate::gpu`]. How many processes use the GPU is known when ranks meet: each tells the others the
//! UUID of its GPU, and what [`Device::portion`](tidegate_hal::device::Device::portion) says. What follows from it,
//! [`terms`] says:
//!
//! - *Without MPS* processes take turns: each has the whole GPU while it has a turn. So each may have as many blocks as
//!   it could have alone, but its waits have [gates](crate::gates), to give the turn away.
//! - *With MPS* (`CU_DEVICE_ATTRIBUTE_MPS_ENABLED`) kernels of all processes run at the same time. So waits need no
//!   gates, but their blocks must be resident *together*: else a block that waits may keep out what it waits for, and
//!   whose process that is makes no difference. Each of n processes gets the nth part of what one alone would get. So
//!   the sum, early batches and all, is never more than before, and leaves user's kernels the same room. For the same
//!   reason each gets its part of the launches that a GPU has at a time ([`GRIDS`]): so many streams of it may wait.
//!
//! What a user's kernel must keep to, so that it finds room, stands in [`crate::gpu`], too: a block of it needs no more
//! than half of a multiprocessor, if a peer may wait for it. With MPS such a peer can be one on the same GPU.
//!
//! # Portions
//!
//! `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, or the server's settings, can limit a process to a portion of the
//! multiprocessors. The number that the driver gives is then the portion's (and where the device's is not, the
//! context's is: the less of the two counts), so the percentage itself is not looked at: it would be applied twice. But
//! a portion is a limit, and reserves nothing: those of several processes may be the same multiprocessors, even if they
//! would fit beside each other. So it is the *least* portion of all that is divided. Then all fit even where all have
//! the same multiprocessors. Who wants each process to have as much as possible leaves the percentage alone.
//!
//! # When the ranks of another world meet later
//!
//! Streams may have quotas by then, for instance of a first world in which nobody else used the GPU. Quotas only ever
//! become less: with its next batch such a stream gets one by the new terms, or an error; and what was recorded before is
//! not replayed any more, which is an error, too. What was enqueued before keeps its blocks. And a process counts the
//! others of one world at a time, and knows nothing of other jobs: where processes use a GPU that have never met in one
//! world, the sum of what they have may be too much. Nor does it know of several MPS servers (with folders of their own):
//! these take turns, and their processes think that they need not.
//!
//! # Hardware queues
//!
//! Without MPS there are 8 for each process, or as many as [`QUEUES`] says. With MPS 2, if it says nothing; and all
//! processes of a GPU draw on one pool, of 120 (96 for older drivers): a process whose number is not there any more
//! gets no context, which is [`DeviceError::Exhausted`] here.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tidegate_ffi::cuda::CudaError;
use tidegate_hal::device::DeviceError;

use crate::error::device_error;
use crate::gates::Mode;
use crate::gpu::{Gpu, lock};
use crate::lower::MAX_BLOCKS;
use crate::reclaim::Shared;

/// The share of the multiprocessors on which blocks may wait: three quarters.
pub const SHARE: (usize, usize) = (3, 4);

/// The environment variable by which the driver is told how many hardware queues to use.
pub const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// The environment variable that says how many streams of a device will wait for peers, whatever the program says; if
/// neither says anything it is 2.
pub const WAITING_STREAMS: &str = "TIDEGATE_CUDA_WAITING_STREAMS";

/// How many connections all processes of a GPU have by MPS: older drivers; newer ones have 120.
const CONNECTIONS: usize = 96;

/// How many launches a GPU has resident at a time, from compute capability 7.0 on. A stream that waits has two: its
/// batch, and the early one behind that. (Kernels that begin early behind a batch are there only when nobody in it waits
/// any more: they, and what is early behind them, end without a peer. One process alone has too few hardware queues to
/// come near it.)
const GRIDS: usize = 128;

/// Streams and couriers of a device, and what they were given.
pub(crate) struct Admitted {
    pub(crate) streams: Vec<Weak<Shared>>,
    /// Blocks that may wait at a time, of all streams.
    blocks: usize,
    /// How many streams may wait at a time.
    waiting: usize,
    /// Blocks that streams may have waiting.
    granted: usize,
    /// How many streams have some.
    holders: usize,
    /// Couriers of all streams, those included that will wait for ever.
    couriers: usize,
    pub(crate) waiting_for_ever: usize,
    /// Whether ranks are threads: then many streams share the device.
    crowded: bool,
    /// How many streams the program says will wait.
    said: Option<usize>,
    /// How many other processes were seen to use the device at the same time.
    others: usize,
    /// How often all has been dealt anew.
    dealing: usize,
}

impl Admitted {
    /// Of a process that has so many multiprocessors to itself.
    pub(crate) fn of(multiprocessors: usize) -> Self {
        Admitted {
            streams: Vec::new(),
            blocks: share_of(multiprocessors),
            waiting: usize::MAX,
            granted: 0,
            holders: 0,
            couriers: 0,
            waiting_for_ever: 0,
            crowded: false,
            said: None,
            others: 0,
            dealing: 0,
        }
    }

    /// What a stream's quota is, where so many are expected.
    fn quota(&self, expected: usize) -> usize {
        // No more streams can wait than there are launches for.
        quota_of(self.blocks, expected.min(self.waiting))
    }

    /// How many streams are expected to wait.
    fn expected(&self) -> usize {
        let crowd = if self.crowded { 12 } else { 2 };
        number(WAITING_STREAMS)
            .or(self.said)
            .unwrap_or(crowd)
            .max(1)
    }

    /// Gives a stream its quota, where so many are expected.
    fn deal(&mut self, expected: usize) -> Result<usize, DeviceError> {
        let (all, quota) = (self.blocks, self.quota(expected));
        if self.granted + quota > all || self.holders >= self.waiting {
            let shared = match self.others {
                0 => String::new(),
                others => format!(
                    ", to {} streams of {} at most (MPS shares the device with {others} other processes; CUDA_MPS_ACTIVE_THREAD_PERCENTAGE makes it less still)",
                    self.holders, self.waiting
                ),
            };
            return Err(DeviceError::Exhausted {
                what: "blocks that may wait on the device",
                detail: format!(
                    "{} of {all} are granted{shared}, and a stream gets {quota}, since {expected} streams are expected to wait; if more do, `WorldOptions::waiting_streams` says so, or {WAITING_STREAMS}",
                    self.granted
                ),
            });
        }
        self.granted += quota;
        self.holders += 1;
        Ok(quota)
    }

    /// By these terms, if they leave less of anything than those before: all is dealt anew. Whether they do.
    fn renew(&mut self, terms: Terms, others: usize) -> bool {
        let less = terms.blocks < self.blocks || terms.streams < self.waiting;
        if less {
            self.blocks = self.blocks.min(terms.blocks);
            self.waiting = self.waiting.min(terms.streams);
            self.others = self.others.max(others);
            (self.granted, self.holders) = (0, 0);
            self.dealing += 1;
        }
        less
    }

    /// A stream gives its quota back, which it got in this dealing; 0 if it has none. Of a former dealing it is not
    /// counted any more.
    fn take_back(&mut self, (quota, dealing): (usize, usize)) {
        if dealing == self.dealing {
            self.granted -= quota;
            self.holders -= usize::from(quota != 0);
        }
    }
}

/// What is done about waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// They spin.
    Spin,
    /// They have gates.
    Gated,
    /// They should have gates, and the device has none.
    Crawl,
}

/// How a process uses a GPU that others may use, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) waits: Waits,
    /// Blocks that may wait at a time, of all its streams.
    pub(crate) blocks: usize,
    /// How many of them may wait.
    pub(crate) streams: usize,
}

/// Who uses a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Users {
    /// Processes of the job, without this one.
    pub(crate) others: usize,
    /// Multiprocessors that this process may use.
    pub(crate) own: usize,
    /// Whether it does so by MPS.
    pub(crate) mps: bool,
    /// The least number of any of the processes; 0 if one is without MPS.
    pub(crate) least: usize,
}

/// What follows from who uses the GPU, from what the environment says of gates, and from whether the device can have
/// them.
pub(crate) fn terms(mode: Mode, users: Users, memory_operations: bool) -> Terms {
    let Users {
        others,
        own,
        mps,
        least,
    } = users;
    let by_turns = others > 0 && least == 0;
    let wanted = match mode {
        Mode::Always => true,
        Mode::Auto => by_turns,
        Mode::Never => false,
    };
    let waits = match (wanted, memory_operations) {
        (false, _) => Waits::Spin,
        (true, true) => Waits::Gated,
        (true, false) => Waits::Crawl,
    };
    // Whatever the mode: some waits have no gates. And one process without MPS does not end it for the others.
    let (blocks, streams) = if mps && others > 0 {
        let portion = if least == 0 { own } else { own.min(least) };
        let all = others + 1;
        (share_of(portion) / all, share_of(GRIDS) / 2 / all)
    } else {
        (share_of(own), usize::MAX)
    };
    Terms {
        waits,
        blocks,
        streams,
    }
}

/// What may wait of so many multiprocessors (blocks), or of so many launches.
fn share_of(all: usize) -> usize {
    all * SHARE.0 / SHARE.1
}

/// A stream's part of `blocks`, where so many streams are expected.
fn quota_of(blocks: usize, expected: usize) -> usize {
    (blocks / expected.max(1)).clamp(1, MAX_BLOCKS)
}

/// How many hardware queues the driver uses for a process, if the environment says `set`.
fn queues_of(set: Option<&str>, mps: bool) -> usize {
    let set = set.and_then(|value| value.trim().parse().ok());
    set.unwrap_or(if mps { 2 } else { 8usize }).clamp(1, 32)
}

/// Whether there is a queue for one stream more beside so many. Without MPS one stream is let have what there is, even if
/// somebody has set fewer queues than three; by MPS two is what there is if nobody has set anything.
fn has_queue(streams: usize, queues: usize, mps: bool) -> bool {
    streams + 2 < if mps { queues } else { queues.max(3) }
}

/// How many multiprocessors a process may use: what the driver says of the device, and under MPS of the context.
pub(crate) fn multiprocessors(device: i32, context: Option<usize>) -> usize {
    let device = device.max(1) as usize;
    context
        .filter(|count| *count > 0)
        .unwrap_or(device)
        .min(device)
}

/// The driver makes no context.
pub(crate) fn no_context(what: &'static str, error: CudaError) -> DeviceError {
    if !error.is_mps_full() {
        return device_error(what, error);
    }
    let set = std::env::var(QUEUES).unwrap_or_else(|_| "not set".into());
    DeviceError::Exhausted {
        what: "what the MPS server has for processes",
        detail: format!(
            "{what}: {error}; all processes of a GPU share {CONNECTIONS} connections, and {QUEUES}, the number for each, is {set}: set it to {CONNECTIONS} divided by the number of processes (or there are too many of them for the server)"
        ),
    }
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.trim().parse().ok()
}

impl Gpu {
    /// How many hardware queues the driver uses.
    fn queues(&self) -> usize {
        queues_of(std::env::var(QUEUES).ok().as_deref(), self.mps)
    }

    /// Admits a stream, if there is a hardware queue for it. Two are the device's own.
    pub(crate) fn admit(&self, stream: &Arc<Shared>) -> Result<(), DeviceError> {
        let mut admitted = lock(&self.admitted);
        admitted.streams.retain(|stream| stream.strong_count() > 0);
        let streams = admitted.streams.len() + admitted.couriers;
        let queues = self.queues();
        if !has_queue(streams, queues, self.mps) {
            return Err(DeviceError::Exhausted {
                what: "hardware queues of the device",
                detail: format!(
                    "{streams} streams are open (couriers of large puts included) and two are the device's own; {QUEUES} is {queues}, and can be set up to 32 before the process starts{}",
                    if self.mps {
                        " (under MPS it is 2 unless it is set, and all processes of a GPU share 96: set it to 96 divided by their number)"
                    } else {
                        ""
                    }
                ),
            });
        }
        admitted.streams.push(Arc::downgrade(stream));
        Ok(())
    }

    /// Admits a courier, if there is a hardware queue for it: a quarter of them is for couriers.
    pub(crate) fn admit_courier(&self) -> bool {
        let mut admitted = lock(&self.admitted);
        admitted.streams.retain(|stream| stream.strong_count() > 0);
        let (queues, streams) = (self.queues(), admitted.streams.len());
        let room = streams + admitted.couriers + 2 < queues && admitted.couriers < queues / 4;
        admitted.couriers += usize::from(room);
        room
    }

    /// A courier is gone.
    pub(crate) fn dismiss_courier(&self) {
        lock(&self.admitted).couriers -= 1;
    }

    /// So many couriers will wait for ever.
    pub(crate) fn leave_waiting(&self, couriers: usize) {
        lock(&self.admitted).waiting_for_ever += couriers;
    }

    /// As nobody else is known to use it.
    pub(crate) fn alone(&self) -> Users {
        Users {
            others: 0,
            own: self.multiprocessors,
            mps: self.mps,
            least: 0,
        }
    }

    /// So many other processes of the job use the GPU; `least` is the least portion of any, and 0 if one takes turns.
    pub(crate) fn shared_with(&self, others: usize, least: usize) {
        let users = Users {
            others,
            least,
            ..self.alone()
        };
        let terms = terms(self.gates, users, self.memory_operations);
        if others > 0 {
            tidegate_hal::tell(|| {
                tracing::info!(
                    others,
                    mps = self.mps,
                    ?terms,
                    "other processes use the GPU"
                );
            });
            self.set_waits(terms.waits, "other processes of the job use the GPU");
        }
        let mut admitted = lock(&self.admitted);
        if admitted.renew(terms, others) {
            // Streams that have their quotas look at this, and recordings.
            self.dealing.store(admitted.dealing, Ordering::Release);
        }
    }

    /// From now on waits have gates, if they are to and the device can.
    pub(crate) fn set_waits(&self, waits: Waits, why: &str) {
        match waits {
            Waits::Spin => {}
            Waits::Gated => self.gated.store(true, Ordering::Release),
            Waits::Crawl => {
                let error = DeviceError::Unsupported {
                    device: "cuda",
                    what: format!("stream memory operations on 64 bits, on {}", self.name),
                };
                tidegate_hal::tell(
                    || tracing::warn!(%error, why, "waits take the time slices of other processes"),
                );
            }
        }
    }

    /// Whether waits have gates.
    pub(crate) fn gated(&self) -> bool {
        self.gated.load(Ordering::Acquire)
    }

    /// Ranks are threads of this process, and share the device.
    pub(crate) fn crowd(&self) {
        lock(&self.admitted).crowded = true;
    }

    /// So many streams will wait; the most that anybody says.
    pub(crate) fn expect_waiting(&self, streams: usize) {
        let mut admitted = lock(&self.admitted);
        admitted.said = admitted.said.max(Some(streams));
    }

    /// Gives a quota of blocks that may wait for one that is given back, with the number of the dealing.
    pub(crate) fn grant(&self, held: (usize, usize)) -> Result<(usize, usize), DeviceError> {
        let mut admitted = lock(&self.admitted);
        admitted.take_back(held);
        let expected = admitted.expected();
        let quota = admitted.deal(expected)?;
        Ok((quota, admitted.dealing))
    }

    /// The quota that a stream would be given that has none.
    pub(crate) fn would_grant(&self) -> usize {
        let admitted = lock(&self.admitted);
        admitted.quota(admitted.expected())
    }

    /// Takes back what was granted.
    pub(crate) fn give_back(&self, held: (usize, usize)) {
        lock(&self.admitted).take_back(held);
    }
}

#[cfg(test)]
mod tests;
