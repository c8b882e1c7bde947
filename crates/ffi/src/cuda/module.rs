//! Modules, their functions, and the resources that a function needs.

use std::ffi::{CStr, c_int, c_void};

use super::error::Result;
use super::handle::{Function, Module};
use super::load::Driver;
use super::sys::{CUfunction_attribute as FunctionAttribute, CUjit_option as JitOption};
use super::table::{call, call_optional};

/// How many bytes of the compiler's log an error keeps.
const LOG_BYTES: usize = 8192;

/// Every PTX is longer, since it names a version and a target.
const HEAD_BYTES: usize = 16;

/// `CUDA_ERROR_INVALID_IMAGE`.
const INVALID_IMAGE: i32 = 200;

impl Driver {
    /// Compiles PTX for the current context's device, and loads it (`cuModuleLoadDataEx`).
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_PTX` and the like, with the compiler's log in the text.
    pub fn module_load_ptx(&self, ptx: &CStr) -> Result<Module> {
        // The driver recognises the kind of an image by its first bytes. If they look like those of a cubin or fatbin,
        // it reads as far as the sizes in the image say, which may be beyond its end. All cubins and fatbins begin with
        // bytes that are not text.
        let head = ptx.to_bytes().get(..HEAD_BYTES);
        let text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        if !head.is_some_and(|head| head.iter().all(text)) {
            let mut error = self.error(self.table.module_load_data_ex.name, INVALID_IMAGE);
            error.text = "it does not begin as PTX does".to_owned();
            return Err(error);
        }
        // SAFETY: text that ends with a NUL is an image. The driver parses the text, and executes nothing.
        unsafe { self.load_image(ptx.as_ptr().cast()) }
    }

    /// Loads a cubin or fatbin (`cuModuleLoadDataEx`).
    ///
    /// # Errors
    ///
    /// As for [`module_load_ptx`](Self::module_load_ptx).
    ///
    /// # Safety
    ///
    /// `image` is a whole cubin or fatbin: the driver trusts the sizes in it.
    pub unsafe fn module_load_image(&self, image: &[u64]) -> Result<Module> {
        // SAFETY: the caller vouches for the image.
        unsafe { self.load_image(image.as_ptr().cast()) }
    }

    /// # Safety
    ///
    /// `image` is a whole cubin or fatbin, or text that ends with a NUL.
    unsafe fn load_image(&self, image: *const c_void) -> Result<Module> {
        let mut module = Module::NULL;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            JitOption::CU_JIT_ERROR_LOG_BUFFER,
            JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // Each value is as wide as a pointer. The size is passed as such a value itself, not by its address. The driver
        // is not told of the last byte of the buffer, so that stays a NUL.
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            std::ptr::without_provenance_mut(LOG_BYTES - 1),
        ];
        // SAFETY: the caller vouches for the image. There are as many options and values as the number says. They and
        // the buffer are alive, and the buffer's size is passed. One handle is written into a live variable.
        let answer = unsafe {
            call!(self.module_load_data_ex(
                &mut module.0,
                image,
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            ))
        };
        answer.map_err(|mut error| {
            // The driver is not asked how much it has written: not all drivers tell it.
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            if !log.trim().is_empty() {
                if !error.text.is_empty() {
                    error.text.push('\n');
                }
                error.text.push_str(log.trim_end());
            }
            error
        })?;
        Ok(module)
    }

    /// The kernel with this (mangled) name (`cuModuleGetFunction`).
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_FOUND`, if the module has no such kernel.
    ///
    /// # Safety
    ///
    /// `module` is alive.
    pub unsafe fn module_function(&self, module: Module, name: &CStr) -> Result<Function> {
        let mut function = Function::NULL;
        // SAFETY: the caller vouches for the handle; the name ends with a NUL; one handle is written into a live
        // variable.
        unsafe { call!(self.module_get_function(&mut function.0, module.0, name.as_ptr())) }?;
        Ok(function)
    }

    /// Copies the function to the device now, instead of at its first launch (`cuFuncLoad`; from CUDA 12.4 on).
    ///
    /// # Safety
    ///
    /// `function` is alive.
    pub unsafe fn func_load(&self, function: Function) -> Result<()> {
        // SAFETY: the caller vouches for the handle.
        unsafe { call_optional!(self.func_load(function.0)) }
    }

    /// The offset and the size of the kernel's parameter `index`, in bytes (`cuFuncGetParamInfo`; from CUDA 12.4 on).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](tidegate_hal::device::ErrorKind), if the kernel has no such parameter.
    ///
    /// # Safety
    ///
    /// `function` is alive.
    pub unsafe fn func_param_info(
        &self,
        function: Function,
        index: usize,
    ) -> Result<(usize, usize)> {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the caller vouches for the handle; two sizes are written into two live variables.
        unsafe {
            call_optional!(self.func_get_param_info(function.0, index, &mut offset, &mut size))
        }?;
        Ok((offset, size))
    }

    /// How many bytes of shared memory a block of the function takes, without those that its launch asks for
    /// (`cuFuncGetAttribute`, `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`).
    ///
    /// # Safety
    ///
    /// `function` is alive.
    pub unsafe fn func_shared_memory(&self, function: Function) -> Result<usize> {
        let mut bytes: c_int = 0;
        let size = FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: the caller vouches for the handle; one int is written into a live variable.
        unsafe { call!(self.func_get_attribute(&mut bytes, size, function.0)) }?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Lets launches of the function ask for so many bytes of shared memory (`cuFuncSetAttribute`,
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`). Without it they may ask for 48 KiB, less what each block
    /// takes.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE`, if it is more than a block can have.
    ///
    /// # Safety
    ///
    /// `function` is alive.
    pub unsafe fn func_allow_shared_memory(&self, function: Function, bytes: usize) -> Result<()> {
        let most = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // A number that no int holds becomes the largest int, which is too many for the driver, too.
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the caller vouches for the handle; the attribute is a number.
        unsafe { call!(self.func_set_attribute(function.0, most, bytes)) }
    }

    /// Asks that a multiprocessor where the function runs has at least so much of the shared memory that it can have,
    /// in percent. The rest stays a cache (`cuFuncSetAttribute`, `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`).
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE`, if it is more than 100.
    ///
    /// # Safety
    ///
    /// `function` is alive.
    pub unsafe fn func_prefer_shared_memory(&self, function: Function, percent: u8) -> Result<()> {
        let carveout = FunctionAttribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the caller vouches for the handle; the attribute is a number.
        unsafe { call!(self.func_set_attribute(function.0, carveout, c_int::from(percent))) }
    }

    /// How many blocks one multiprocessor can have at a time, if each has so many threads and so many bytes of dynamic
    /// shared memory (`cuOccupancyMaxActiveBlocksPerMultiprocessor`).
    ///
    /// # Safety
    ///
    /// `function` is alive.
    pub unsafe fn max_active_blocks_per_multiprocessor(
        &self,
        function: Function,
        threads: u32,
        shared_bytes: usize,
    ) -> Result<u32> {
        let mut blocks: c_int = 0;
        // A number that no int holds becomes the largest int, which is too many for the driver, too.
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: the caller vouches for the handle; one int is written into a live variable.
        unsafe {
            call!(self.occupancy_max_active_blocks_per_multiprocessor(
                &mut blocks,
                function.0,
                threads,
                shared_bytes,
            ))
        }?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}
