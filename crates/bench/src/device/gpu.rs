//! GPUs: kernels are functions of `kernels/bench.cu`, memory is copied to be looked at.

use super::{BenchDevice, Words, WordsIn};
use std::sync::Arc;
use tidegate_core::kernel::{Function, Module};
use tidegate_core::window::Slots;
use tidegate_core::{Element, OnHost, Region, Result, Stream, World, kernel};
use tidegate_cuda::Cuda;
use tidegate_gpu::TimedEvent;
use tidegate_hal::device::{DeviceError, Grid, LaunchDevice};
use tidegate_hip::Hip;

kernel! {
    /// Copies all slots, one after the other.
    ///
    /// # Safety
    ///
    /// The module has `bench_gather(const Slot *slots, size_t slots_len, uint64_t *out, size_t out_len)`, which reads the
    /// current buffers of the slots within their lengths, writes `out[0..out_len]` only, and ends.
    unsafe fn bind_gather = "bench_gather"(slots: Slots<u64>, out: &mut [u64]);
}

/// What the benchmarks ask of the GPUs of a vendor, beyond what the library's traits have.
pub trait Gpu: LaunchDevice {
    /// How many GPUs there are.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Missing`], which names the missing part.
    fn count() -> std::result::Result<usize, DeviceError>;

    /// The GPU's name.
    fn name(&self) -> &str;

    /// How many multiprocessors it has.
    fn multiprocessors(&self) -> usize;

    /// Whether kernels begin before earlier work has ended. Then the code of this GPU waits by itself.
    fn begins_early(&self) -> bool;

    /// Enqueues an event that has a time.
    ///
    /// # Errors
    ///
    /// If the driver refuses.
    fn timed_event(stream: &Self::Stream) -> std::result::Result<Arc<TimedEvent>, DeviceError>;
}

macro_rules! gpu {
    ($device:ty, $begins_early:expr) => {
        impl Gpu for $device {
            fn count() -> std::result::Result<usize, DeviceError> {
                Self::count()
            }

            fn name(&self) -> &str {
                self.name()
            }

            fn multiprocessors(&self) -> usize {
                self.multiprocessors()
            }

            fn begins_early(&self) -> bool {
                $begins_early(self)
            }

            fn timed_event(
                stream: &Self::Stream,
            ) -> std::result::Result<Arc<TimedEvent>, DeviceError> {
                stream.timed_event()
            }
        }
    };
}

gpu!(Cuda, |gpu: &Cuda| gpu.compute_capability() >= (9, 0));
gpu!(Hip, |_| false);

impl<D: Gpu> BenchDevice for D {
    type Gather = Function<D, (Slots<'static, u64>, &'static mut [u64])>;

    fn available() -> std::result::Result<(), DeviceError> {
        match D::count()? {
            0 => Err(DeviceError::Missing {
                device: D::NAME,
                detail: "the driver lists no device".into(),
            }),
            _ => Ok(()),
        }
    }

    fn label(&self) -> String {
        self.name().to_owned()
    }

    fn look<T: Element + Default>(
        region: &Region<T, OnHost<Self>>,
        check: &mut dyn FnMut(&[T]),
    ) -> Result<()> {
        let mut values = vec![T::default(); region.len()];
        region.read(0, &mut values)?;
        check(&values);
        Ok(())
    }

    fn gather_kernel(world: &World<Self>) -> Result<Self::Gather> {
        let module = Module::load(world, tidegate_kernels::BENCH)?;
        // SAFETY: the function is that of `kernels/bench.cu`, which keeps to what `bind_gather` asks: it strides over
        // the slots' own lengths and stops at `out_len`; entries of slots are as `Parameter` describes them.
        unsafe { bind_gather(&module) }
    }

    fn gather<'s>(
        kernel: &Self::Gather,
        stream: &Stream<'s, Self>,
        inbox: &WordsIn<'s, Self>,
        out: &mut Words<'s, Self>,
    ) -> Result<()> {
        let grid = Grid {
            blocks: [256, 1, 1],
            threads: [256, 1, 1],
            shared: 0,
        };
        stream.launch(kernel.over(grid), (inbox.view(), out))
    }
}
