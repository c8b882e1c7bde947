//! Programs in memory of the device.

use std::sync::Arc;

use tidegate_ffi::cuda::{DevicePtr, Function, LaunchConfig};
use tidegate_hal::batch::Batch;
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::{Block as _, Sharing};

use crate::block::CudaBlock;
use crate::gpu::{Early, Gpu};
use crate::lower::{LAUNCH_NEXT, LaunchParameter, Program, THREADS};

/// A program that can be launched.
pub(crate) struct Placed {
    _block: CudaBlock,
    gpu: Arc<Gpu>,
    /// What is the same in every launch.
    parameter: LaunchParameter,
    blocks: usize,
    pub(crate) function: Function,
}

impl Placed {
    pub(crate) fn new(gpu: &Arc<Gpu>, batch: &Batch, quota: usize) -> Result<Self, DeviceError> {
        let mut program = Program::new(batch, quota, gpu.bulk.is_some())?;
        let block = CudaBlock::alloc(gpu, program.len().max(16), Sharing::Private)?;
        let base = block.base().0.addr() as u64;
        program.placed_at(base);
        let bytes = &program.bytes;
        // SAFETY: the block was allocated with this size, and is ours alone; the source lives until the service stream is done.
        gpu.serve("placing a batch", |driver, stream| unsafe {
            driver.memcpy_htod_async(DevicePtr(base), bytes.as_ptr().cast(), bytes.len(), stream)
        })?;
        Ok(Placed {
            _block: block,
            gpu: gpu.clone(),
            parameter: LaunchParameter {
                program: base,
                state: 0,
                mirror: 0,
                follow: [0; 2],
                stride: program.stride as u32,
                flags: if gpu.early == Early::Resident {
                    LAUNCH_NEXT
                } else {
                    0
                },
            },
            blocks: program.blocks,
            function: gpu.bulk.filter(|_| program.bulk).unwrap_or(gpu.batch),
        })
    }

    /// Whether a stream of this device with this quota can launch it.
    pub(crate) fn fits(&self, gpu: &Arc<Gpu>, quota: usize) -> bool {
        self.blocks <= quota && Arc::ptr_eq(&self.gpu, gpu)
    }

    /// The parameter of a launch on a stream with this state.
    pub(crate) fn parameter(&self, state: u64, mirror: u64, follow: [u64; 2]) -> LaunchParameter {
        LaunchParameter {
            state,
            mirror,
            follow,
            ..self.parameter
        }
    }

    /// One block for each entry.
    pub(crate) fn config(&self) -> LaunchConfig {
        LaunchConfig::new([self.blocks as u32, 1, 1], [THREADS as u32, 1, 1])
            .programmatic_stream_serialization(self.gpu.early != Early::No)
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks == 0
    }
}
