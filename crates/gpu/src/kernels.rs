//! The batch kernel, loaded: the one that most streams use, and the one for streams that are stamped.

use std::ffi::CStr;
use std::sync::{Arc, Mutex};

use tidegate_hal::code::Code;
use tidegate_hal::device::DeviceError;

use crate::clock::Clock;
use crate::driver::{Doing, Driver, Function, Limits, Module};
use crate::lower::THREADS;
use crate::owners::BESIDE;

/// A function of the module, ready, and how many blocks of it a multiprocessor holds.
pub(crate) fn function(
    driver: &'static dyn Driver,
    module: Module,
    name: &CStr,
    limits: &Limits,
) -> Result<(Function, u32), DeviceError> {
    let what = "loading the batch kernel";
    // SAFETY: modules are never unloaded.
    let (function, _) = unsafe { driver.function(module, name) }.doing(what)?;
    // Blocks of batches wait, perhaps on all multiprocessors. Beside each of them, a block of a user's kernel may need
    // all the shared memory of a half.
    // SAFETY: as above.
    unsafe { driver.prefer_shared_memory(function) }.doing(what)?;
    // SAFETY: as above.
    let shared = unsafe { driver.shared_memory(function) }.doing(what)?;
    if shared + limits.shared_memory.reserved > BESIDE {
        return Err(DeviceError::Code(format!(
            "{name:?}: a block takes {shared} bytes of shared memory, and kernels that wait leave {BESIDE}"
        )));
    }
    // SAFETY: as above.
    let resident = unsafe { driver.resident_blocks(function, THREADS, 0) }.doing(what)?;
    Ok((function, resident))
}

/// The code for streams that are stamped.
pub(crate) struct Stamped {
    pub(crate) code: Code<'static>,
    /// `None` as long as there was no such stream.
    pub(crate) loaded: Mutex<Option<Arc<Loaded>>>,
}

/// The same, loaded.
pub(crate) struct Loaded {
    pub(crate) kernels: Kernels,
    pub(crate) clock: Clock,
}

impl Stamped {
    pub(crate) fn new(code: Code<'static>) -> Self {
        Stamped {
            code,
            loaded: Mutex::new(None),
        }
    }
}

/// The functions of the batch kernel.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    pub(crate) batch: Function,
    /// For batches in which a lane reduces.
    reduce: Function,
}

impl Kernels {
    /// The functions of these names: for batches of which no lane reduces, and for the others.
    pub(crate) fn of(
        driver: &'static dyn Driver,
        module: Module,
        [batch, reduce]: [&CStr; 2],
        limits: &Limits,
    ) -> Result<Self, DeviceError> {
        let (batch, batches) = function(driver, module, batch, limits)?;
        let (reduce, reductions) = function(driver, module, reduce, limits)?;
        if batches.min(reductions) == 0 {
            return Err(DeviceError::Unsupported {
                device: limits.vendor,
                what: format!(
                    "a block of the batch kernel does not fit a multiprocessor of {}",
                    limits.name
                ),
            });
        }
        Ok(Kernels { batch, reduce })
    }

    /// The function for a program of which a lane `reduces`, or does not.
    pub(crate) fn of_program(&self, reduces: bool) -> Function {
        if reduces { self.reduce } else { self.batch }
    }

    pub(crate) fn contains(&self, function: Function) -> bool {
        [self.batch, self.reduce].contains(&function)
    }
}
