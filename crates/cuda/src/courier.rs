//! Couriers: streams that make the copies of large lanes, by the copy engines.
//!
//! # Model
//!
//! What a lane and its courier say to each other, and why it is so, stands in [`crate::lower::apart`]. Here is the
//! courier's side: a stream that waits for *go* by a stream memory operation, makes the copies, and writes *back*. The
//! host numbers the errands; *go* and *back* count the same number in quanta.
//!
//! A stream gets its couriers with its first large lane, up to [`COURIERS`] of them. Each takes one of the device's
//! hardware queues, as a stream does: behind a courier that waits for *go* nothing else may stand. Together they get a
//! quarter of the queues; a lane that finds no courier is carried out by blocks.
//!
//! # Failure
//!
//! When a stream has failed and has been drained, nobody adds to *go* any more. Then a courier is either on its way,
//! and comes back; or it was not told to go, and never will be. *go* says which ([`Couriers::end`]). What is enqueued
//! on the latter is never executed, so the memory that the copies name may go; the words and the driver's stream may
//! not, and are kept for ever. The device has a stream that is never idle from then on: loading code is refused
//! ([`DeviceError::Busy`](tidegate_hal::device::DeviceError)), pages of NICs are not taken back any more
//! (`registers.rs`), and whoever in the process asks the driver to wait for
//! *all* streams of the device, waits for ever. A program that means to go on after a failure, with a library that does
//! that, turns couriers off (`TIDEGATE_CUDA_COPY_ENGINE_FROM=never`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_ffi::cuda::{CudaError, DevicePtr, MemOp, Stream};
use tidegate_hal::batch::QUANTUM;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};

use crate::block::CudaBlock;
use crate::gpu::Gpu;
use crate::lower::apart::{Errand, Words};

/// How many couriers a stream has, at most: so many lanes of a batch are taken apart.
const COURIERS: usize = 4;

/// Bytes of a courier's words: *go* in one line, *back* and its operand in the next.
const WORDS: usize = 256;

/// What became of a courier when its stream had been drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All its errands are done.
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
    /// No other's.
    pub(crate) id: u64,
    /// Their words. None if it had to be left behind.
    block: Option<CudaBlock>,
    all: Vec<Courier>,
    /// Something could not be enqueued: they get no more to do.
    broken: AtomicBool,
    /// What became of each, once that is settled.
    ended: std::sync::OnceLock<Vec<End>>,
}

impl Couriers {
    /// Makes as many as the device has room for; none, if that is no room at all, or the device cannot do it.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !gpu.memory_operations {
            return None;
        }
        // Mapped memory: the driver refuses stream memory operations on that of the pool.
        let block = CudaBlock::alloc(gpu, COURIERS * WORDS, Sharing::Peers).ok()?;
        let base = block.base();
        let mut all = Vec::new();
        while all.len() < COURIERS && gpu.admit_courier() {
            let Ok(stream) = gpu.driver.stream_create(0) else {
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
            ended: std::sync::OnceLock::new(),
        })
    }

    /// Whether they can be given something to do.
    pub(crate) fn ready(&self) -> bool {
        !self.broken.load(Ordering::Relaxed) && self.ended.get().is_none()
    }

    /// Their words, in order.
    pub(crate) fn words(&self) -> Vec<Words> {
        self.all.iter().map(|courier| courier.words).collect()
    }

    /// Gives the first ones their errands. Before the launch that tells them to go: what cannot be enqueued must not be
    /// waited for.
    ///
    /// # Errors
    ///
    /// If the driver refuses. The batch must not be launched then, and they get no more to do.
    ///
    /// # Safety
    ///
    /// From when the courier is told to go until it is back, each copy's memory is there, and nobody else uses it but
    /// to read the source.
    pub(crate) unsafe fn send(&self, errands: &[Vec<Errand>]) -> Result<(), CudaError> {
        let each = self.all.iter().zip(errands);
        let sent = each.map(|(courier, errands)| {
            // SAFETY: the caller's promise.
            unsafe { courier.send(&self.gpu, errands) }
        });
        let sent: Result<(), CudaError> = sent.collect();
        sent.inspect_err(|_| self.give_up())
    }

    /// They get no more to do: what they were given last was not launched.
    pub(crate) fn give_up(&self) {
        if !self.broken.swap(true, Ordering::Relaxed) {
            self.gpu.leave_waiting(1);
        }
    }

    /// Waits until all that were told to go are back, if `wait`; finds out which were not. Whether that is settled now.
    ///
    /// Only when the stream has been drained: nobody tells them to go any more.
    pub(crate) fn end(&self, wait: bool) -> bool {
        if self.ended.get().is_some() {
            return true;
        }
        let ends: Option<Vec<End>> = self
            .all
            .iter()
            .map(|courier| courier.end(&self.gpu, wait))
            .collect();
        let Some(ends) = ends else { return false };
        let waiting = ends.iter().filter(|end| **end == End::Waiting).count();
        // One was counted when they were given up.
        let counted = usize::from(self.broken.load(Ordering::Relaxed));
        if self.ended.set(ends).is_ok() && waiting > counted {
            tidegate_hal::tell(|| {
                tracing::warn!(
                    waiting,
                    "large puts of a stream that failed were not made: the device is never idle any more"
                );
            });
            self.gpu.leave_waiting(waiting - counted);
        }
        true
    }
}

impl Courier {
    /// # Safety
    ///
    /// As [`Couriers::send`].
    unsafe fn send(&self, gpu: &Gpu, errands: &[Errand]) -> Result<(), CudaError> {
        let number = self.sent.load(Ordering::Acquire) + 1;
        let (count, driver) = (number * QUANTUM, gpu.driver);
        let at = |word: Ptr| DevicePtr(word.0.addr() as u64);
        let mut go = [MemOp::wait64(at(self.words.go), count)];
        // SAFETY: the stream and the words live as long as this, or for ever.
        unsafe { driver.stream_batch_mem_op(self.stream, &mut go) }?;
        // From here on it waits.
        self.sent.store(number, Ordering::Release);
        for errand in errands {
            let (target, source) = (DevicePtr(errand.dst), DevicePtr(errand.src));
            // SAFETY: the caller's promise: the copy is made after *go*, and before *back*.
            unsafe {
                driver.memcpy_dtod_async(target, source, errand.bytes as usize, self.stream)
            }?;
        }
        // After the copies, for everybody: that is the default.
        let mut back = [MemOp::write64(at(self.words.back), count)];
        // SAFETY: as above; only the lane looks at the word.
        unsafe { driver.stream_batch_mem_op(self.stream, &mut back) }
    }

    /// None: it is still on its way, or the driver does not say.
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
        // SAFETY: the stream is alive; all that it waits for has come.
        let done = unsafe {
            if wait {
                gpu.driver.stream_synchronize(self.stream).map(|()| true)
            } else {
                gpu.driver.stream_query(self.stream)
            }
        };
        // A context that is lost executes nothing any more.
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
        self.end(true);
        let ends = self.ended.get();
        let waits = |index: usize| ends.is_none_or(|ends| ends[index] == End::Waiting);
        for (index, courier) in self.all.iter().enumerate() {
            if !waits(index) && self.gpu.enter().is_ok() {
                // SAFETY: it has nothing to do any more, and nobody else has it.
                let _ = unsafe { self.gpu.driver.stream_destroy(courier.stream) };
                self.gpu.dismiss_courier();
            }
        }
        if (0..self.all.len()).any(waits) {
            // The device looks at the words for ever.
            std::mem::forget(self.block.take());
        }
    }
}
