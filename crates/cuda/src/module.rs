//! Loaded code, and its functions.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use tidegate_ffi::cuda::{Function, LaunchConfig, Module};
use tidegate_hal::device::{Call, DeviceError, Grid, LaunchDevice, Parameters};

use crate::code::Code;
use crate::device::Cuda;
use crate::error::Doing;
use crate::gpu::{Early, Gpu};
use crate::last::Last;
use crate::line::First;
use crate::stream::CudaStream;

/// Loaded code. It stays loaded as long as the process lives, because unloading could block behind a wait.
pub struct CudaModule {
    gpu: Arc<Gpu>,
    module: Module,
}

/// A function of loaded code.
pub struct CudaFunction {
    _module: Arc<CudaModule>,
    function: Function,
    parameters: usize,
    /// The function waits by itself for the end of the work in front of it.
    early: bool,
}

fn symbol(name: &str) -> Result<CString, DeviceError> {
    CString::new(name).map_err(|_| DeviceError::Code(format!("{name:?}: a name has no zero byte")))
}

impl CudaModule {
    pub(crate) fn load(gpu: &Arc<Gpu>, code: &[u8]) -> Result<Arc<Self>, DeviceError> {
        let code = Code::new(code)?;
        gpu.idle("loading code")?;
        gpu.enter()?;
        let module = match &code {
            Code::Text(ptx) => gpu.driver.module_load_ptx(ptx),
            // SAFETY: `Code::new` has checked that the image contains everything that its sizes name. The driver checks
            // the contents, as it does with PTX, and executes nothing.
            Code::Image(words) => unsafe { gpu.driver.module_load_image(words) },
        };
        let module = module.map_err(|error| DeviceError::Code(error.to_string()))?;
        Ok(Arc::new(CudaModule {
            gpu: gpu.clone(),
            module,
        }))
    }

    pub(crate) fn function(
        self: &Arc<Self>,
        name: &str,
        sizes: &[usize],
    ) -> Result<CudaFunction, DeviceError> {
        // The driver may load code only when it is first used, and that could block.
        self.gpu.idle("binding a function")?;
        self.gpu.enter()?;
        let driver = self.gpu.driver;
        // SAFETY: modules are never unloaded.
        let function = unsafe { driver.module_function(self.module, &symbol(name)?) }
            .map_err(|error| DeviceError::Code(format!("`{name}`: {error}")))?;
        // The function is loaded now, and not behind a wait. If the driver cannot do that, the first launch does.
        // SAFETY: as above.
        let _ = unsafe { driver.func_load(function) };
        let mut taken = Vec::new();
        loop {
            // SAFETY: as above.
            match unsafe { driver.func_param_info(function, taken.len()) } {
                Ok((_, size)) => taken.push(size),
                // An older driver cannot tell.
                Err(error) if error.is_missing() => {
                    taken = sizes.to_vec();
                    break;
                }
                Err(_) => break,
            }
        }
        if taken != sizes {
            return Err(DeviceError::Code(format!(
                "`{name}` takes parameters of {taken:?} bytes, and is bound with {sizes:?}"
            )));
        }
        Ok(CudaFunction {
            _module: self.clone(),
            function,
            parameters: sizes.len(),
            early: false,
        })
    }
}

// SAFETY: a launch is in stream order, with the parameters that it is given.
unsafe impl LaunchDevice for Cuda {
    type Module = CudaModule;
    type Function = CudaFunction;

    fn load(&self, code: &[u8]) -> Result<Arc<CudaModule>, DeviceError> {
        CudaModule::load(self.gpu(), code)
    }

    fn function(
        module: &Arc<CudaModule>,
        name: &str,
        sizes: &[usize],
    ) -> Result<CudaFunction, DeviceError> {
        module.function(name, sizes)
    }

    unsafe fn begin_early(function: CudaFunction) -> CudaFunction {
        CudaFunction {
            early: true,
            ..function
        }
    }

    unsafe fn launch(
        stream: &CudaStream,
        function: &CudaFunction,
        grid: Grid,
        parameters: &Parameters,
    ) -> Result<(), DeviceError> {
        let mut arguments: [*mut c_void; Parameters::MAX] = [std::ptr::null_mut(); Parameters::MAX];
        let addresses = parameters.addresses();
        if addresses.len() != function.parameters {
            return Err(DeviceError::Code(format!(
                "the function takes {} parameters, and gets {}",
                function.parameters,
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
        let can = function.early && shared.gpu.early != Early::No;
        let let_nobody_come = || stream.let_nobody_come();
        let early =
            (stream.last.take()).kernel_follows(can, shared.is_capturing(), let_nobody_come);
        let mut config = LaunchConfig::new(grid.blocks, grid.threads).shared_bytes(grid.shared);
        if early {
            config = config.programmatic_stream_serialization(true);
        }
        let arguments = &mut arguments[..function.parameters];
        let driver = shared.gpu.driver;
        // SAFETY: the caller promises that the parameters are the function's, and for the memory that they name;
        // modules are never unloaded. A function that begins early waits by itself, as the caller that bound it
        // promised.
        let launch = || unsafe {
            driver.launch_kernel_ex(function.function, &config, shared.raw, arguments)
        };
        let launched = stream.during(Call::Launch, launch);
        // This comes after the launch, so that no thread takes the item for passed meanwhile.
        shared.count();
        match launched {
            Err(error) if error.is_invalid_value() => {
                Err(DeviceError::Code(format!("{grid:?}: {error}")))
            }
            launched => launched
                .map_err(|error| shared.note(error))
                .doing("launching a kernel"),
        }?;
        let first = if function.early {
            First::Early
        } else {
            First::Other
        };
        stream.launched(Last::Kernel, first);
        stream.during(Call::Launch, || stream.submitted())
    }
}
