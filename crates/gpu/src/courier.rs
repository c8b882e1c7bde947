//! Couriers: streams that copy the large puts of a lane with the copy engines.
//!
//! # Model
//!
//! [`crate::lower::apart`] says how a lane and its courier work together, and why. This file is the courier's side: a
//! stream that waits for the word *go* with a stream memory operation, makes the copies, and writes the word *back*.
//! The host numbers the errands. *Go* and *back* count the same number in quanta.
//!
//! A stream gets its couriers, at most [`COURIERS`], with its first large lane. Each takes one of the device's hardware
//! queues, as a stream does, since nothing else may stand behind a courier that waits for *go*. All couriers together
//! get a quarter of the queues. A lane without a courier is carried out by blocks.
//!
//! # Failure
//!
//! In a lost context nothing is carried out any more, so every courier counts as back.
//!
//! After a stream has failed otherwise and has been drained, nobody adds to *go* any more. Then a courier is either on
//! its way, and comes back, or it was not told to go, and never will be. The word *go* says which ([`Couriers::end`]).
//!
//! In the second case the copies are never made, so the memory that they name may be freed. The words and the driver's
//! stream may not: they are kept for ever, and one stream of the device is never idle again. From then on
//!
//! - loading code is refused ([`DeviceError::Busy`](tidegate_hal::device::DeviceError));
//! - pages of NICs stay registered (`registers.rs`);
//! - a call that asks the driver to wait for *all* streams of the device waits for ever.
//!
//! If a program goes on after a failure, with a library that makes such calls, it should turn couriers off
//! (`TIDEGATE_GPU_COPY_ENGINE_FROM=never`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tidegate_hal::batch::QUANTUM;
use tidegate_hal::device::Priority;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};

use crate::block::GpuBlock;
use crate::driver::{DriverError, Stream, WordOp};
use crate::gpu::{Gpu, lock};
use crate::lower::apart::{Errand, Words};

/// The most couriers of a stream, and so the most lanes of a batch that are carried out by couriers.
const COURIERS: usize = 4;

/// Bytes of a courier's words: *go* in one cache line, *back* and its operand in the next.
const WORDS: usize = 256;

/// The state of a courier when its stream had been drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All its errands are done, or the context is lost, and nothing is carried out any more.
    Home,
    /// It was not told to go, and never will be.
    Waiting,
}

struct Courier {
    stream: Stream,
    words: Words,
    /// How many errands it was given.
    sent: AtomicU64,
}

/// The couriers of one stream.
pub(crate) struct Couriers {
    gpu: Arc<Gpu>,
    /// A number that no other stream's couriers have.
    pub(crate) id: u64,
    /// The couriers' words. `None` if the block had to be left behind.
    block: Option<GpuBlock>,
    all: Vec<Courier>,
    /// An errand could not be enqueued, so the couriers get no more errands.
    broken: AtomicBool,
    /// How many couriers the device has noted as waiting for ever.
    noted: Mutex<usize>,
    /// The state of each courier, once it is settled.
    ended: OnceLock<Vec<End>>,
}

impl Couriers {
    /// Makes as many couriers as the device has room for. Returns `None` if there is no room at all, or if the device
    /// cannot have couriers.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !gpu.limits.word_operations {
            return None;
        }
        // The block is mapped memory, because the driver refuses stream memory operations on memory of the pool.
        let block = GpuBlock::alloc(gpu, COURIERS * WORDS, Sharing::Peers).ok()?;
        let base = block.base();
        let mut all = Vec::new();
        while all.len() < COURIERS && gpu.admit_courier() {
            let Ok(stream) = gpu.driver.stream_create(Priority::Normal) else {
                gpu.dismiss_courier();
                break;
            };
            let at = base.byte_add(all.len() * WORDS);
            all.push(Courier {
                stream,
                words: Words {
                    go: at,
                    back: at.byte_add(WORDS / 2),
                    operand: at.byte_add(WORDS / 2 + 8),
                },
                sent: AtomicU64::new(0),
            });
        }
        (!all.is_empty()).then(|| Couriers {
            gpu: gpu.clone(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            block: Some(block),
            all,
            broken: AtomicBool::new(false),
            noted: Mutex::new(0),
            ended: OnceLock::new(),
        })
    }

    /// Whether the couriers can be given errands.
    pub(crate) fn ready(&self) -> bool {
        !self.broken.load(Ordering::Relaxed) && self.ended.get().is_none()
    }

    /// The couriers' words, in order.
    pub(crate) fn words(&self) -> Vec<Words> {
        self.all.iter().map(|courier| courier.words).collect()
    }

    /// Gives errands to the first couriers. Call it before the launch that tells them to go: the launch must not wait
    /// for errands that could not be enqueued.
    ///
    /// # Errors
    ///
    /// If the driver refuses. The batch must not be launched then, and the couriers get no more errands.
    ///
    /// # Safety
    ///
    /// From the time when the courier is told to go until it is back, each copy's memory is live. Meanwhile others may
    /// only read the source, and may not access the target.
    pub(crate) unsafe fn send(&self, errands: &[Vec<Errand>]) -> Result<(), DriverError> {
        for (index, (courier, errands)) in self.all.iter().zip(errands).enumerate() {
            let before = courier.sent.load(Ordering::Acquire);
            // SAFETY: the caller's promise.
            let sent = unsafe { courier.send(&self.gpu, errands) };
            sent.inspect_err(|_| {
                let waits = courier.sent.load(Ordering::Acquire) != before;
                self.give_up(index + usize::from(waits));
            })?;
        }
        Ok(())
    }

    /// Gives the couriers no more errands, because nothing was launched for the last errands of the first `waiting`
    /// couriers. They wait for ever.
    pub(crate) fn give_up(&self, waiting: usize) {
        self.broken.store(true, Ordering::Relaxed);
        let mut noted = lock(&self.noted);
        if self.ended.get().is_none() {
            let waiting = waiting.min(self.all.len());
            self.gpu.leave_waiting(waiting, *noted);
            *noted = waiting;
        }
    }

    /// Finds out which couriers were not told to go, and returns whether this is settled for all of them. With `wait`,
    /// it waits until those that were told are back. In a `lost` context nobody is on the way or waits.
    ///
    /// Call it only after the stream has been drained: nobody tells a courier to go any more.
    pub(crate) fn end(&self, wait: bool, lost: bool) -> bool {
        if self.ended.get().is_some() {
            return true;
        }
        let ends: Option<Vec<End>> = self
            .all
            .iter()
            .map(|courier| match lost {
                // The driver would not even read the word *go*.
                true => Some(End::Home),
                false => courier.end(&self.gpu, wait),
            })
            .collect();
        let Some(ends) = ends else { return false };
        let waiting = ends.iter().filter(|end| **end == End::Waiting).count();
        let noted = {
            let noted = lock(&self.noted);
            if self.ended.set(ends).is_err() {
                return true;
            }
            self.gpu.leave_waiting(waiting, *noted);
            *noted
        };
        if waiting > noted {
            tidegate_hal::tell(|| {
                tracing::warn!(
                    waiting,
                    "large puts of a stream that failed were not made: the device is never idle any more"
                );
            });
        }
        true
    }
}

impl Courier {
    /// # Safety
    ///
    /// As [`Couriers::send`].
    unsafe fn send(&self, gpu: &Gpu, errands: &[Errand]) -> Result<(), DriverError> {
        let number = self.sent.load(Ordering::Acquire) + 1;
        let (count, driver) = (number * QUANTUM, gpu.driver);
        let at = |word: Ptr| word.0.addr() as u64;
        let go = [WordOp::Wait(at(self.words.go), count)];
        // SAFETY: the stream and the words live as long as this, or for ever.
        unsafe { driver.stream_word_ops(self.stream, &go) }?;
        // From here on the courier waits.
        self.sent.store(number, Ordering::Release);
        for errand in errands {
            let (target, source) = (errand.dst, errand.src);
            // SAFETY: the caller's promise; the copy is made after *go* and before *back*.
            unsafe { driver.copy(target, source, errand.bytes as usize, self.stream) }?;
        }
        // The write follows the copies and makes them visible to everyone, which is the default of such writes.
        let back = [WordOp::Write(at(self.words.back), count)];
        // SAFETY: as above; only the lane reads the word.
        unsafe { driver.stream_word_ops(self.stream, &back) }
    }

    /// How it ended. `None` if it is still on its way, or if the driver does not say.
    fn end(&self, gpu: &Gpu, wait: bool) -> Option<End> {
        let sent = self.sent.load(Ordering::Acquire);
        if sent == 0 {
            return Some(End::Home);
        }
        // SAFETY: the words live as long as this.
        let told = unsafe { gpu.look_at(self.words.go.0.addr() as u64) }?;
        if told < sent * QUANTUM {
            return Some(End::Waiting);
        }
        // SAFETY: the stream is live, and all that it waits for has come.
        let done = unsafe {
            if wait {
                gpu.driver.stream_synchronize(self.stream).map(|()| true)
            } else {
                gpu.driver.stream_query(self.stream)
            }
        };
        // A lost context executes nothing any more.
        match done {
            Ok(false) => None,
            _ => Some(End::Home),
        }
    }
}

impl Drop for Couriers {
    fn drop(&mut self) {
        if !self.gpu.process.is_this() {
            return;
        }
        // The stream has been drained.
        self.end(true, false);
        let ends = self.ended.get();
        let waits = |index: usize| ends.is_none_or(|ends| ends[index] == End::Waiting);
        for (index, courier) in self.all.iter().enumerate() {
            if !waits(index) && self.gpu.enter().is_ok() {
                // SAFETY: the courier's stream has nothing to do any more, and nobody else uses it.
                let _ = unsafe { self.gpu.driver.stream_destroy(courier.stream) };
                self.gpu.dismiss_courier();
            }
        }
        if (0..self.all.len()).any(waits) {
            // The device reads the words for ever.
            std::mem::forget(self.block.take());
        }
    }
}
