//! Modules, their functions, and the resources that functions need.

use std::ffi::{CStr, c_int, c_void};

use super::error::Result;
use super::handle::{Function, Module};
use super::load::Driver;
use super::sys::CUjit_option as JitOption;
use super::table::{call, call_optional};

/// How many bytes of the compiler's log an error keeps.
const LOG_BYTES: usize = 8192;

/// No PTX is shorter: it names a version and a target.
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
        // The driver tells an image's kind by how it begins. What looks like a cubin or fatbin would be read by the
        // sizes in it, and beyond the end; all of those begin with bytes that are not text.
        let head = ptx.to_bytes().get(..HEAD_BYTES);
        let text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        if !head.is_some_and(|head| head.iter().all(text)) {
            let mut error = self.error(self.table.module_load_data_ex.name, INVALID_IMAGE);
            error.text = "it does not begin as PTX does".to_owned();
            return Err(error);
        }
        // SAFETY: text that ends with a NUL is an image; the driver parses it, and executes none of it.
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
    /// `image` is a cubin or fatbin, of which nothing is missing: the driver believes the sizes that stand in it.
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
        // Each value is as wide as a pointer; the size is one itself, not the address of one. The last byte stays ours:
        // a NUL, whatever the driver does.
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            std::ptr::without_provenance_mut(LOG_BYTES - 1),
        ];
        // SAFETY: the caller vouches for the image; the options and their values are as many as is said, and live, as
        // does the buffer, whose size is passed; one handle is written, to one that lives.
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
            // How much was written is not asked: drivers differ in whether they say it.
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

    /// The kernel of this (mangled) name (`cuModuleGetFunction`).
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_FOUND`, if the module has none.
    ///
    /// # Safety
    ///
    /// `module` is alive.
    pub unsafe fn module_function(&self, module: Module, name: &CStr) -> Result<Function> {
        let mut function = Function::NULL;
        // SAFETY: the caller vouches for the handle; the name ends with a NUL; one handle is written, to one that lives.
        unsafe { call!(self.module_get_function(&mut function.0, module.0, name.as_ptr())) }?;
        Ok(function)
    }

    /// Brings the function to the device now, and not with its first launch (`cuFuncLoad`; from CUDA 12.4).
    ///
    /// # Safety
    ///
    /// `function` is alive.
    pub unsafe fn func_load(&self, function: Function) -> Result<()> {
        // SAFETY: the caller vouches for the handle.
        unsafe { call_optional!(self.func_load(function.0)) }
    }

    /// Where parameter `index` of the kernel lies among its parameters, and how large it is, both in bytes
    /// (`cuFuncGetParamInfo`; from CUDA 12.4).
    ///
    /// # Errors
    ///
    /// [`is_invalid_value`](super::CudaError::is_invalid_value), if the kernel has no such parameter.
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
        // SAFETY: the caller vouches for the handle; two sizes are written, to two that live.
        unsafe {
            call_optional!(self.func_get_param_info(function.0, index, &mut offset, &mut size))
        }?;
        Ok((offset, size))
    }

    /// How many blocks of so many threads, with so many bytes of dynamic shared memory, one multiprocessor can have at a time
    /// (`cuOccupancyMaxActiveBlocksPerMultiprocessor`).
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
        // More threads than an int can say are too many for the driver, too.
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: the caller vouches for the handle; one int is written, to one that lives.
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
