//! Loaded code, and its functions.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use tidegate_hal::batch::QUANTUM;
use tidegate_hal::code::Code;
use tidegate_hal::device::{Call, DeviceError, Grid, Parameters};

use crate::driver::{Doing, ErrorKind, Function, Launch, Module};
use crate::gpu::Gpu;
use crate::last::{Early, Last};
use crate::line::First;
use crate::lower::MOST_BLOCKS;
use crate::owners::{self, Shape};
use crate::share::Admitable as _;
use crate::stream::GpuStream;

/// Loaded code. It stays loaded as long as the process lives, because unloading could block behind a wait.
pub struct GpuModule {
    gpu: Arc<Gpu>,
    module: Module,
}

/// A function of loaded code.
pub struct GpuFunction {
    _module: Arc<GpuModule>,
    function: Function,
    parameters: usize,
    /// The function waits by itself for the end of the work in front of it.
    early: bool,
}

fn symbol(name: &str) -> Result<CString, DeviceError> {
    CString::new(name).map_err(|_| DeviceError::Code(format!("{name:?}: a name has no zero byte")))
}

impl GpuModule {
    pub(crate) fn load(gpu: &Arc<Gpu>, code: &Code<'_>) -> Result<Arc<Self>, DeviceError> {
        gpu.idle("loading code")?;
        gpu.enter()?;
        let module = gpu.driver.load(code)?;
        Ok(Arc::new(GpuModule {
            gpu: gpu.clone(),
            module,
        }))
    }

    /// As [`LaunchDevice::function`](tidegate_hal::device::LaunchDevice::function).
    pub fn function(
        self: &Arc<Self>,
        name: &str,
        sizes: &[usize],
    ) -> Result<GpuFunction, DeviceError> {
        // The driver may load code only when it is first used, and that could block.
        self.gpu.idle("binding a function")?;
        self.gpu.enter()?;
        let driver = self.gpu.driver;
        // SAFETY: modules are never unloaded.
        let (function, taken) = unsafe { driver.function(self.module, &symbol(name)?) }
            .map_err(|error| DeviceError::Code(format!("`{name}`: {error}")))?;
        let taken = taken.unwrap_or_else(|| sizes.to_vec());
        if taken != sizes {
            return Err(DeviceError::Code(format!(
                "`{name}` takes parameters of {taken:?} bytes, and is bound with {sizes:?}"
            )));
        }
        Ok(GpuFunction {
            _module: self.clone(),
            function,
            parameters: sizes.len(),
            early: false,
        })
    }
}

impl GpuFunction {
    /// The function, if it waits by itself for the end of the work in front of it.
    #[must_use]
    pub fn early(self) -> Self {
        GpuFunction {
            early: true,
            ..self
        }
    }
}

impl GpuFunction {
    /// Makes sure that all blocks of a kernel that waits can run at the same time. Returns the bytes of shared memory
    /// to launch it with.
    fn admit(&self, stream: &GpuStream, grid: Grid) -> Result<u32, DeviceError> {
        let gpu = &stream.shared.gpu;
        let unsupported = |why: &str| DeviceError::Unsupported {
            device: gpu.limits.vendor,
            what: format!("a kernel that owns a half of a window, {why}"),
        };
        if self.early {
            return Err(unsupported("if its function may begin early"));
        }
        if !gpu.lets_kernels_wait() {
            return Err(unsupported("on a GPU that processes use in turn"));
        }
        let product = |of: [u32; 3]| {
            of.iter()
                .fold(1, |all: usize, count| all.saturating_mul(*count as usize))
        };
        let (blocks, threads) = (product(grid.blocks), product(grid.threads));
        // Each block adds a part of the quantum. A batch takes the last `MOST_BLOCKS` of a quantum for promised, so each
        // part is larger.
        let most = QUANTUM / (MOST_BLOCKS + 1);
        if blocks as u64 > most {
            return Err(DeviceError::Exhausted {
                what: "parts of an epoch for a kernel that owns a half of a window",
                detail: format!("there are {most}, and the kernel has {blocks} blocks"),
            });
        }
        let (driver, function) = (gpu.driver, self.function);
        // SAFETY: modules are never unloaded.
        let prepared = unsafe { driver.shared_memory(function) }.and_then(|own| {
            let shared = owners::shared(own, grid.shared as usize, &gpu.limits.shared_memory);
            // SAFETY: as above.
            unsafe { driver.prefer_shared_memory(function) }?;
            // SAFETY: as above.
            let each = unsafe { driver.resident_blocks(function, threads, shared) }?;
            Ok((each as usize, shared as u32))
        });
        match prepared {
            Ok((each @ 1.., bytes)) => (stream.shared.own(Shape { blocks, each })).map(|()| bytes),
            Ok((0, _)) => Err(DeviceError::Code(format!(
                "{grid:?}: no multiprocessor has room for a block"
            ))),
            Err(error) if error.kind == ErrorKind::Invalid => {
                Err(DeviceError::Code(format!("{grid:?}: {error}")))
            }
            Err(error) => Err(error).doing("asking for the room of a kernel"),
        }
    }

    /// Launches the function.
    ///
    /// # Safety
    ///
    /// As for [`LaunchDevice::launch`](tidegate_hal::device::LaunchDevice::launch).
    pub unsafe fn launch(
        &self,
        stream: &GpuStream,
        grid: Grid,
        waits: bool,
        parameters: &Parameters,
    ) -> Result<(), DeviceError> {
        let mut arguments: [*mut c_void; Parameters::MAX] = [std::ptr::null_mut(); Parameters::MAX];
        let addresses = parameters.addresses();
        if addresses.len() != self.parameters {
            return Err(DeviceError::Code(format!(
                "the function takes {} parameters, and gets {}",
                self.parameters,
                addresses.len()
            )));
        }
        if grid
            .blocks
            .iter()
            .chain(&grid.threads)
            .any(|size| *size == 0)
        {
            return Err(DeviceError::Code(format!(
                "a grid without threads: {grid:?}"
            )));
        }
        for (argument, address) in arguments.iter_mut().zip(addresses) {
            *argument = address.cast_mut().cast();
        }
        let shared = &stream.shared;
        shared.gpu.enter()?;
        let bytes = match waits {
            true => self.admit(stream, grid)?,
            false => grid.shared,
        };
        let can = self.early && shared.gpu.early != Early::No;
        let let_nobody_come = || stream.let_nobody_come();
        let early =
            (stream.last.take()).kernel_follows(can, shared.is_capturing(), let_nobody_come);
        let launch = Launch {
            blocks: grid.blocks,
            threads: grid.threads,
            shared: bytes,
            early,
            together: waits,
        };
        let arguments = &mut arguments[..self.parameters];
        let driver = shared.gpu.driver;
        // SAFETY: the caller promises that the parameters are the function's, and for the memory that they name;
        // modules are never unloaded. A function that begins early waits by itself, as the caller that bound it
        // promised.
        let launch = || unsafe { driver.launch(self.function, &launch, shared.raw, arguments) };
        let launched = stream.during(Call::Launch, launch);
        // This comes after the launch, so that no thread takes the item for passed meanwhile.
        shared.count();
        match launched {
            Err(error) if error.kind == ErrorKind::Invalid => {
                Err(DeviceError::Code(format!("{grid:?}: {error}")))
            }
            launched => launched
                .map_err(|error| shared.note(error))
                .doing("launching a kernel"),
        }?;
        let first = if self.early {
            First::Early
        } else {
            First::Other
        };
        stream.launched(Last::Kernel, first);
        stream.during(Call::Launch, || stream.submitted())
    }
}
