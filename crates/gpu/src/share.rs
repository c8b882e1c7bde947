//! What a process, and each of its streams, gets of a GPU: blocks that may wait, and hardware queues.
//!
//! # Model
//!
//! Blocks that wait may occupy three multiprocessors of four ([`SHARE`]); [`crate::gpu`] says why this keeps a job from
//! blocking itself. When ranks meet, they find out how many processes use the GPU: each sends the UUID of its GPU, and
//! its [`Device::portion`](tidegate_hal::device::Device::portion). [`terms`] decides what follows:
//!
//! - *In turn* ([`Sharing::InTurn`]) each process has all of the GPU during its turn. So each may have as many blocks as
//!   it could have alone, but its waits have [gates](crate::gates), so that it gives its turn away while it waits.
//! - *Together* ([`Sharing::Together`]) kernels of all processes run at the same time. So waits need no gates, but the
//!   blocks of all processes must be resident *together*. Otherwise a waiting block could keep out the kernel that it
//!   waits for, of the same process or of another one. Each of n processes gets the nth part of one process's blocks.
//!   So the sum, with early batches, never grows, and user's kernels have as much room as before. For the same reason
//!   each process gets a part of the launches that a GPU can have at a time ([`Limits::launches`]), which limits how
//!   many of its streams may wait. A stream that waits needs two: its batch, and the early batch behind it. (A kernel
//!   that begins early behind a batch needs none, since nothing in the batch waits any more by then. Neither does
//!   anything that is early behind the kernel.)
//!
//! - Kernels that own halves of windows wait by themselves, with all of their blocks: [`crate::owners`] says which of them
//!   fit. Where processes use the GPU in turn, there are none. Where they run together, each block needs at most half of
//!   a multiprocessor.
//!
//! - If nobody has seen how the device is shared ([`Sharing::Unknown`]), batches are refused as soon as another process
//!   uses it.
//!
//! If a peer may wait for a user's kernel, a block of the kernel must need no more than half of a multiprocessor, so
//! that it finds room ([`crate::gpu`]). If processes run together, the peer can be on the same GPU.
//!
//! # Portions
//!
//! A process may be limited to a portion of the multiprocessors ([`Limits::multiprocessors`]). A portion is a limit, and
//! reserves nothing. Several processes may get the same multiprocessors, even if their portions would fit beside each
//! other. So the *smallest* portion is divided among the processes: then all blocks fit even if all processes have the
//! same multiprocessors.
//!
//! # When ranks of another world meet later
//!
//! Streams may have quotas by then, for instance from a first world in which no other process used the GPU. Quotas
//! never grow. With its next batch such a stream gets a quota by the new terms, or an error. Recordings from before are
//! refused, which is also an error. Work that was already enqueued keeps its blocks, and nobody counts them any more.
//!
//! Two cases are not known here. A process counts the other processes of one world at a time, and knows nothing of
//! other jobs. So if processes that never met in one world share a GPU, their blocks together may be too many. And
//! processes that believe they run at the same time may in truth use the GPU in turn, if they reach it by different
//! servers.

use std::sync::Weak;

use tidegate_hal::device::DeviceError;

use crate::driver::{Limits, Sharing};
use crate::gates::Mode;
use crate::last::Early;
use crate::lower::MAX_BLOCKS;
use crate::owners::{Owners, Shape};

/// The share of the multiprocessors on which blocks may wait: three quarters.
pub const SHARE: (usize, usize) = (3, 4);

/// The environment variable that says how many streams of a device will wait for peers. It overrides the program's
/// number. If neither is set, the number is 2.
pub const WAITING_STREAMS: &str = "TIDEGATE_GPU_WAITING_STREAMS";

/// A stream, as the device that admitted it looks at it.
pub(crate) trait Admitable: Send + Sync {
    /// Whether the stream has passed everything, and no courier is on its way.
    fn is_idle(&self) -> bool;

    /// Whether the stream records.
    fn is_capturing(&self) -> bool;

    /// Waits until the stream has passed everything.
    fn synchronize(&self) -> Result<(), DeviceError>;
}

/// The streams and couriers of a device, and the blocks that they were given.
pub(crate) struct Admitted {
    pub(crate) streams: Vec<Weak<dyn Admitable>>,
    /// How many blocks of all streams together may wait at a time.
    blocks: usize,
    /// How many streams may wait at a time.
    waiting: usize,
    /// The device, if nobody has seen how processes share it.
    unseen: Option<(&'static str, String)>,
    /// What users should know where processes get too few blocks.
    advice: &'static str,
    /// The sum of the streams' quotas.
    granted: usize,
    /// The kernels that own halves of windows.
    pub(crate) owners: Owners,
    /// How many streams have a quota.
    holders: usize,
    /// The couriers of all streams, with those that will wait for ever.
    pub(crate) couriers: usize,
    pub(crate) waiting_for_ever: usize,
    /// Whether ranks are threads, so that many streams share the device.
    pub(crate) crowded: bool,
    /// How many streams will wait, as the program says.
    pub(crate) said: Option<usize>,
    /// The largest number of other processes that were seen to use the device at the same time.
    others: usize,
    /// How often the blocks were dealt again.
    pub(crate) dealing: usize,
}

impl Admitted {
    /// For a process that has the device to itself, and launches batches so early.
    pub(crate) fn of(limits: &Limits, early: Early) -> Self {
        Admitted {
            streams: Vec::new(),
            blocks: share_of(limits.multiprocessors),
            waiting: usize::MAX,
            unseen: (limits.sharing == Sharing::Unknown)
                .then(|| (limits.vendor, limits.name.clone())),
            advice: limits.sharing_advice,
            granted: 0,
            owners: Owners::new(limits.multiprocessors, early),
            holders: 0,
            couriers: 0,
            waiting_for_ever: 0,
            crowded: false,
            said: None,
            others: 0,
            dealing: 0,
        }
    }

    /// The quota of a stream, if `expected` streams are expected to wait.
    pub(crate) fn quota(&self, expected: usize) -> usize {
        // No more streams can wait than there are launches.
        quota_of(self.blocks, expected.min(self.waiting))
    }

    /// How many streams are expected to wait.
    pub(crate) fn expected(&self) -> usize {
        let crowd = if self.crowded { 12 } else { 2 };
        number(WAITING_STREAMS)
            .or(self.said)
            .unwrap_or(crowd)
            .max(1)
    }

    /// Gives a stream its quota, if `expected` streams are expected to wait.
    pub(crate) fn deal(&mut self, expected: usize, stream: usize) -> Result<usize, DeviceError> {
        if let Some((device, name)) = self.unseen.as_ref().filter(|_| self.others > 0) {
            return Err(DeviceError::Unsupported {
                device,
                what: format!(
                    "several processes on one device ({name}): nobody has seen how they share it (other processes: {})",
                    self.others
                ),
            });
        }
        let (all, quota) = (self.blocks, self.quota(expected));
        if self.granted + quota > all || self.holders >= self.waiting {
            let shared = match self.others {
                0 => String::new(),
                others => format!(
                    ", to {} streams of {} at most (the device is shared with {others} other processes; {})",
                    self.holders, self.waiting, self.advice
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
        self.owners.set_quota(stream, quota);
        if !self.owners.is_empty() && !self.owners.fit(self.granted + quota) {
            self.owners.set_quota(stream, 0);
            return Err(DeviceError::Exhausted {
                what: "multiprocessors for work that waits on the device",
                detail: format!(
                    "kernels of other streams own halves of windows, and leave no room for a stream whose batches have {quota} blocks"
                ),
            });
        }
        self.granted += quota;
        self.holders += 1;
        Ok(quota)
    }

    /// Gives a stream room for a kernel that waits. Its batches, which come before the kernel or behind it, have this
    /// quota.
    pub(crate) fn own(
        &mut self,
        stream: usize,
        shape: Shape,
        quota: usize,
    ) -> Result<(), DeviceError> {
        let what = "multiprocessors for work that waits on the device";
        if self.others > 0 && shape.half() == 0 {
            return Err(DeviceError::Exhausted {
                what,
                detail: format!(
                    "a block of a kernel that owns halves of windows needs at most half of a multiprocessor where processes share the device, since nobody knows where blocks of other processes stand (other processes: {}). A multiprocessor has room for only one of these blocks",
                    self.others
                ),
            });
        }
        let before = self.owners.clone();
        self.owners.add(stream, shape, quota);
        if self.owners.fit(self.granted) {
            return Ok(());
        }
        self.owners = before;
        let Shape { blocks, each } = shape;
        Err(DeviceError::Exhausted {
            what,
            detail: format!(
                "all blocks of a kernel that owns halves of windows run at the same time. It has {blocks}, and a multiprocessor has room for {each}. They do not fit on {} multiprocessors beside what other streams need, wherever they stand",
                self.owners.multiprocessors
            ),
        })
    }

    /// Applies these terms. If they leave less of anything than before, all blocks are dealt again, and the result is
    /// true.
    pub(crate) fn renew(&mut self, terms: Terms, others: usize) -> bool {
        let owned = self.owners.multiprocessors;
        let less = terms.blocks < self.blocks
            || terms.streams < self.waiting
            || (terms.multiprocessors < owned && !self.owners.is_empty());
        self.owners.multiprocessors = owned.min(terms.multiprocessors);
        if less {
            self.owners.clear();
            self.blocks = self.blocks.min(terms.blocks);
            self.waiting = self.waiting.min(terms.streams);
            self.others = self.others.max(others);
            (self.granted, self.holders) = (0, 0);
            self.dealing += 1;
        }
        less
    }

    /// Takes back a stream's quota (0 if it has none). A quota of an earlier dealing does not count any more.
    pub(crate) fn take_back(&mut self, (quota, dealing): (usize, usize)) {
        if dealing == self.dealing {
            self.granted -= quota;
            self.holders -= usize::from(quota != 0);
        }
    }
}

/// How a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Waits spin.
    Spin,
    /// Waits have gates.
    Gated,
    /// Waits should have gates, but the device cannot have them.
    Crawl,
}

/// How a process uses a GPU that others may use, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) waits: Waits,
    /// How many blocks of all its streams may wait at a time.
    pub(crate) blocks: usize,
    /// How many of its streams may wait.
    pub(crate) streams: usize,
    /// How many multiprocessors its kernels that wait may have.
    pub(crate) multiprocessors: usize,
}

/// The users of a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Users {
    /// The number of other processes of the job.
    pub(crate) others: usize,
    /// Multiprocessors that this process may use.
    pub(crate) own: usize,
    /// Launches that the device can have resident at a time.
    pub(crate) launches: usize,
    /// How this process shares the GPU.
    pub(crate) sharing: Sharing,
    /// The smallest number of multiprocessors of any process; 0 if a process uses the GPU in turn.
    pub(crate) least: usize,
}

/// The terms on which a process uses a GPU. They depend on the other users, on the mode of gates, and on whether the
/// device can have gates.
pub(crate) fn terms(mode: Mode, users: Users, word_operations: bool) -> Terms {
    let Users {
        others,
        own,
        launches,
        sharing,
        least,
    } = users;
    let by_turns = others > 0 && least == 0;
    let wanted = match mode {
        Mode::Always => true,
        Mode::Auto => by_turns && sharing != Sharing::Unknown,
        Mode::Never => false,
    };
    let waits = match (wanted, word_operations) {
        (false, _) => Waits::Spin,
        (true, true) => Waits::Gated,
        (true, false) => Waits::Crawl,
    };
    // This does not depend on the mode, since some waits have no gates in any mode. And one process that uses the GPU in
    // turn does not end it that the others run together.
    let (blocks, streams, multiprocessors) = if sharing == Sharing::Unknown && others > 0 {
        (0, 0, 0)
    } else if sharing == Sharing::Together && others > 0 {
        let portion = if least == 0 { own } else { own.min(least) };
        let all = others + 1;
        let streams = share_of(launches) / 2 / all;
        (share_of(portion) / all, streams, portion / all)
    } else {
        (share_of(own), usize::MAX, own)
    };
    // A kernel that waits would keep the processes away that it waits for.
    let multiprocessors = if by_turns { 0 } else { multiprocessors };
    Terms {
        waits,
        blocks,
        streams,
        multiprocessors,
    }
}

/// The part of all multiprocessors, or of all launches, that may wait.
fn share_of(all: usize) -> usize {
    all * SHARE.0 / SHARE.1
}

/// A stream's part of `blocks`, if `expected` streams are expected to wait.
fn quota_of(blocks: usize, expected: usize) -> usize {
    (blocks / expected.max(1)).clamp(1, MAX_BLOCKS)
}

/// Whether there is a hardware queue for one more stream. Two queues are for the device's own streams.
pub(crate) fn has_queue(streams: usize, queues: usize) -> bool {
    streams + 2 < queues
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
