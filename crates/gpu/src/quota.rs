//! How many blocks of a stream may wait on the GPU at a time.
//!
//! # Model
//!
//! The GPU deals its blocks out to the streams that ask ([`admit`](crate::admit)). When other processes come, it deals
//! anew, and what was granted before no longer counts. So a stream keeps the number of the dealing with its quota, and
//! asks again once the GPU has another number.
//!
//! # Failure
//!
//! A stream that gets no new quota has none: the old one goes back first.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_hal::device::DeviceError;

use crate::gpu::Gpu;

/// A stream's quota of blocks. Only one thread at a time submits to a stream, and only that one asks for a quota.
#[derive(Default)]
pub(crate) struct Quota {
    /// It is 0 until it is first needed.
    blocks: AtomicUsize,
    /// The number of the dealing in which it was granted.
    dealing: AtomicUsize,
}

impl Quota {
    /// The quota of the stream with this number. It is granted at the first call, and again after a new dealing.
    pub(crate) fn get(&self, gpu: &Gpu, stream: usize) -> Result<usize, DeviceError> {
        let held = self.held();
        if self.counts(gpu, held) {
            return Ok(held.0);
        }
        // The old quota goes back, even if the stream gets no new one.
        self.blocks.store(0, Ordering::Relaxed);
        let (granted, dealing) = gpu.grant(held, stream)?;
        self.dealing.store(dealing, Ordering::Relaxed);
        self.blocks.store(granted, Ordering::Relaxed);
        Ok(granted)
    }

    /// The quota that the stream has, or would get now.
    pub(crate) fn likely(&self, gpu: &Gpu) -> usize {
        let held = self.held();
        if self.counts(gpu, held) {
            held.0
        } else {
            gpu.would_grant()
        }
    }

    /// Returns the quota to the GPU, because the stream is gone.
    pub(crate) fn give_back(&self, gpu: &Gpu) {
        gpu.give_back(self.held());
    }

    fn held(&self) -> (usize, usize) {
        (
            self.blocks.load(Ordering::Relaxed),
            self.dealing.load(Ordering::Relaxed),
        )
    }

    fn counts(&self, gpu: &Gpu, (blocks, dealing): (usize, usize)) -> bool {
        blocks != 0 && dealing == gpu.dealing.load(Ordering::Acquire)
    }
}
