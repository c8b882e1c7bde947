//! CUDA devices: kernels are functions of `kernels/bench.cu`, memory is copied to be looked at.

use super::{BenchDevice, Words, WordsIn};
use tidegate_core::kernel::{Function, Module};
use tidegate_core::window::Slots;
use tidegate_core::{Element, OnHost, Region, Result, Stream, World, kernel};
use tidegate_cuda::Cuda;
use tidegate_hal::device::{DeviceError, Grid};

kernel! {
    /// Copies all slots, one after the other.
    ///
    /// # Safety
    ///
    /// The module has `bench_gather(const Slot *slots, size_t slots_len, uint64_t *out, size_t out_len)`, which reads the
    /// current buffers of the slots within their lengths, writes `out[0..out_len]` only, and ends.
    unsafe fn bind_gather = "bench_gather"(slots: Slots<u64>, out: &mut [u64]);
}

impl BenchDevice for Cuda {
    type Gather = Function<Cuda, (Slots<'static, u64>, &'static mut [u64])>;

    fn available() -> std::result::Result<(), DeviceError> {
        match Cuda::count()? {
            0 => Err(DeviceError::Missing {
                device: "cuda",
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
        let module = Module::load(world, tidegate_kernels::BENCH_PTX.as_bytes())?;
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
