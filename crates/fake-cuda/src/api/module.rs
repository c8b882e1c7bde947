//! Code, and launches of it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use cudarc::driver::sys;

use super::{api, current, give};
use crate::args::{Function, Launch};
use crate::codes;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::ptx;
use crate::settings::Settings;
use crate::state::state;
use crate::work::What;

const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;
const COOPERATIVE: u32 = 2;
const MAX_DYNAMIC_SHARED_SIZE: c_int = 8;
const PREFERRED_SHARED_MEMORY_CARVEOUT: c_int = 9;

/// How many blocks of so many threads a multiprocessor has at a time.
fn resident(threads: c_int) -> c_int {
    (2048 / threads.max(1)).min(2)
}

/// Whether blocks that stay, and take so much, leave 14 KiB of the shared memory that they come to, whatever its
/// size. A real multiprocessor keeps that size while a block stands there, so a library that does not look at this
/// hangs at times.
fn leaves(asked: usize) -> bool {
    let block = (asked + 1024).next_multiple_of(128);
    let fits = |size: usize| (size / block).min((228 << 10) / block / 2);
    let mut sizes = [8, 16, 32, 64, 100, 132, 164, 196, 228]
        .map(|size| size << 10)
        .into_iter();
    sizes.all(|size| fits(size) == 0 || size - fits(size) * block >= 14 << 10)
}

fn function(handle: Handle) -> Result<Arc<Function>, i32> {
    let state = state();
    let function = state.functions.get(&handle).cloned();
    function.ok_or(codes::INVALID_HANDLE)
}

/// The module of a text of PTX.
///
/// # Safety
///
/// It ends with a zero byte.
unsafe fn load(image: *const c_char) -> Result<Handle, i32> {
    current()?;
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(image) };
    let text = text.to_str().map_err(|_| codes::INVALID_PTX)?;
    let entries = ptx::entries(text).ok_or(codes::INVALID_PTX)?;
    let mut state = state();
    let handle = state.fresh();
    state.modules.insert(handle, entries);
    Ok(handle)
}

/// # Safety
///
/// `arguments` is what the driver's documentation says.
unsafe fn launch(
    handle: Handle,
    how: ([u32; 3], [u32; 3], u32),
    (stream, early): (Handle, bool),
    arguments: *const *const c_void,
) -> Result<(), i32> {
    current()?;
    let function = function(handle)?;
    if i64::from(how.2) > i64::from(function.most_shared.load(Relaxed)) {
        return Err(codes::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let launch = unsafe { Launch::new((handle, function), how, arguments) }?;
    state()
        .enqueue(stream, What::Grid(Arc::new(launch)), early)
        .map(drop)
}

api! {
    fn cuModuleLoadDataEx(module: *mut Handle, image: *const c_char, _count: c_uint, _options: *mut c_int, _values: *mut *mut c_void) {
        // SAFETY: `api`.
        unsafe { give(module, load(image)?) }
    }

    fn cuModuleLoadData(module: *mut Handle, image: *const c_char) {
        // SAFETY: `api`.
        unsafe { give(module, load(image)?) }
    }

    fn cuModuleUnload(module: Handle) {
        state().modules.remove(&module).map(|_| ()).ok_or(codes::INVALID_HANDLE)
    }

    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        // SAFETY: `api`: text that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| codes::NOT_FOUND)?;
        let machine = Machine::get().map_err(|_| codes::NOT_SUPPORTED)?;
        let mut state = state();
        let entries = state.modules.get(&module).ok_or(codes::INVALID_HANDLE)?;
        let entry = entries.iter().find(|entry| entry.name == name).cloned();
        let entry = entry.ok_or(codes::NOT_FOUND)?;
        let Some(kernel) = machine.kernel(name) else {
            eprintln!("fake GPU: the host's compiler has not made `{name}`");
            return Err(codes::NOT_FOUND);
        };
        if machine.sizes(kernel) != entry.sizes {
            eprintln!("fake GPU: `{name}` takes other parameters in this PTX than in the sources here");
            return Err(codes::NOT_FOUND);
        }
        let handle = state.fresh();
        let (carveout, most_shared) = (AtomicI32::new(-1), AtomicI32::new(48 << 10));
        state.functions.insert(handle, Arc::new(Function { kernel, entry, carveout, most_shared }));
        // SAFETY: `api`.
        unsafe { give(function, handle) }
    }

    fn cuModuleGetLoadingMode(mode: *mut c_uint) {
        // Eager.
        // SAFETY: `api`.
        unsafe { give(mode, 1) }
    }

    fn cuFuncLoad(handle: Handle) {
        function(handle).map(|_| ())
    }

    fn cuFuncGetParamInfo(handle: Handle, index: usize, offset: *mut usize, size: *mut usize) {
        let function = function(handle)?;
        let known = function.entry.sizes.get(index).zip(function.entry.offsets.get(index));
        let (bytes, at) = known.ok_or(codes::INVALID_VALUE)?;
        // SAFETY: `api`.
        unsafe { give(offset, *at) }?;
        match size.is_null() {
            true => Ok(()),
            // SAFETY: `api`.
            false => unsafe { give(size, *bytes) },
        }
    }

    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, handle: Handle) {
        let function = function(handle)?;
        // The most threads of a block, its shared memory, and what it is made for; nothing else is used up here.
        let found = match attribute {
            0 => 1024,
            1 => c_int::try_from(function.entry.shared).map_err(|_| codes::INVALID_VALUE)?,
            5 | 6 => 90,
            _ => 0,
        };
        // SAFETY: `api`.
        unsafe { give(value, found) }
    }

    fn cuFuncSetAttribute(handle: Handle, attribute: c_int, value: c_int) {
        let function = function(handle)?;
        match attribute {
            PREFERRED_SHARED_MEMORY_CARVEOUT => function.carveout.store(value, Relaxed),
            MAX_DYNAMIC_SHARED_SIZE if value > 227 << 10 => return Err(codes::INVALID_VALUE),
            MAX_DYNAMIC_SHARED_SIZE => function.most_shared.store(value, Relaxed),
            _ => {}
        }
        Ok(())
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, handle: Handle, threads: c_int, _shared: usize) {
        function(handle)?;
        if !(1..=1024).contains(&threads) {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: `api`.
        unsafe { give(blocks, resident(threads)) }
    }

    fn cuLaunchKernel(
        handle: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Handle, arguments: *const *const c_void, _extra: *mut c_void,
    ) {
        // SAFETY: `api`.
        unsafe { launch(handle, ([gx, gy, gz], [bx, by, bz], shared), (stream, false), arguments) }
    }

    fn cuLaunchKernelEx(config: *const sys::CUlaunchConfig, handle: Handle, arguments: *const *const c_void, _extra: *mut c_void) {
        if config.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: `api`.
        let config = unsafe { &*config };
        let blocks = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let threads = [config.blockDimX, config.blockDimY, config.blockDimZ];
        let says = |wanted: u32| {
            (0..config.numAttrs as usize).any(|index| {
                // SAFETY: `api`: there are so many.
                let attribute = unsafe { config.attrs.add(index) };
                // SAFETY: as above; its kind is a number, whichever it is.
                let kind = unsafe { (&raw const (*attribute).id).cast::<u32>().read() };
                // SAFETY: as above; a value of both kinds is an int.
                kind == wanted && unsafe { (*attribute).value.cooperative } != 0
            })
        };
        let (early, cooperative) = (says(PROGRAMMATIC_STREAM_SERIALIZATION), says(COOPERATIVE));
        let product = |of: [u32; 3]| of.iter().fold(1, |all: i64, count| all.saturating_mul(i64::from(*count)));
        let each = resident(c_int::try_from(product(threads)).unwrap_or(c_int::MAX));
        let room = i64::from(each * Settings::get().multiprocessors);
        if cooperative && product(blocks) > room {
            return Err(codes::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        let function = function(handle)?;
        let waits = cooperative || function.entry.name.starts_with("tidegate_");
        let shared = function.entry.shared + config.sharedMemBytes as usize;
        if waits && function.carveout.load(Relaxed) != 100 || cooperative && !leaves(shared) {
            eprintln!("fake GPU: `{}` waits, and may leave no shared memory to other blocks", function.entry.name);
            return Err(codes::INVALID_VALUE);
        }
        let stream = config.hStream.expose_provenance();
        // SAFETY: `api`.
        unsafe { launch(handle, (blocks, threads, config.sharedMemBytes), (stream, early), arguments) }
    }
}
