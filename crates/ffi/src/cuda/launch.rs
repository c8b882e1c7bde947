//! Launches: of kernels, and of functions on the host.

use std::ffi::c_void;

use super::error::Result;
use super::handle::{Function, Stream};
use super::load::Driver;
use super::sys;
use super::table::call;

/// A function that a stream calls on the host (`CUhostFn`). It must not unwind, and must call nothing of the driver.
pub type HostFn = unsafe extern "C" fn(*mut c_void);

/// One slot for each attribute that can be set.
const ATTRIBUTES: usize = 3;

/// How a kernel is launched (`CUlaunchConfig`, but for the stream).
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    attributes: [sys::CUlaunchAttribute; ATTRIBUTES],
    set: usize,
}

impl std::fmt::Debug for LaunchConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<_> = self.attributes[..self.set].iter().map(|a| a.id).collect();
        f.debug_struct("LaunchConfig")
            .field("grid", &self.grid)
            .field("block", &self.block)
            .field("shared_bytes", &self.shared_bytes)
            .field("attributes", &ids)
            .finish()
    }
}

/// A value with nothing in it but zeros, for a part to be set.
const ZEROS: sys::CUlaunchAttributeValue = sys::CUlaunchAttributeValue { pad: [0; 64] };

impl LaunchConfig {
    /// So many blocks, of so many threads, in x, y and z.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        let none = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE,
            pad: [0; 4],
            value: ZEROS,
        };
        LaunchConfig {
            grid,
            block,
            shared_bytes: 0,
            attributes: [none; ATTRIBUTES],
            set: 0,
        }
    }

    /// So many bytes of dynamic shared memory a block.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// The priority of this launch, instead of the stream's; a smaller number is a greater priority.
    pub fn priority(self, priority: i32) -> Self {
        let mut value = ZEROS;
        value.priority = priority;
        self.attribute(
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY,
            value,
        )
    }

    /// The kernel may begin before the kernel in front of it in the stream has ended, from where that one allows it.
    /// What it needs of that one it must wait for itself (`griddepcontrol.wait`).
    pub fn programmatic_stream_serialization(self, allowed: bool) -> Self {
        let mut value = ZEROS;
        value.programmaticStreamSerializationAllowed = i32::from(allowed);
        self.attribute(
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            value,
        )
    }

    /// So many blocks are a cluster, in x, y and z; the grid is a multiple.
    pub fn cluster(self, [x, y, z]: [u32; 3]) -> Self {
        let mut value = ZEROS;
        value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        self.attribute(
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            value,
        )
    }

    /// Sets one attribute; the same one, set again, is replaced, so that there is a slot for each.
    fn attribute(
        mut self,
        id: sys::CUlaunchAttributeID,
        value: sys::CUlaunchAttributeValue,
    ) -> Self {
        let known = self.attributes[..self.set].iter().position(|a| a.id == id);
        let at = known.unwrap_or(self.set);
        self.attributes[at] = sys::CUlaunchAttribute {
            id,
            pad: [0; 4],
            value,
        };
        self.set = self.set.max(at + 1);
        self
    }

    fn with_raw<T>(&self, stream: Stream, use_it: impl FnOnce(&sys::CUlaunchConfig) -> T) -> T {
        let mut attributes = self.attributes;
        use_it(&sys::CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            hStream: stream.0,
            attrs: attributes.as_mut_ptr(),
            numAttrs: self.set as u32,
        })
    }
}

impl Driver {
    /// Enqueues a kernel (`cuLaunchKernel`). Attributes of `config` are *not* looked at: see
    /// [`launch_kernel_ex`](Self::launch_kernel_ex).
    ///
    /// # Safety
    ///
    /// `function` and `stream` are alive, in one context. `arguments` are as many pointers as the kernel has
    /// parameters, each to a value of the parameter's type; they are read before this returns. All that the kernel does
    /// with them is sound when it is executed.
    pub unsafe fn launch_kernel(
        &self,
        function: Function,
        config: &LaunchConfig,
        stream: Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
        let shared = config.shared_bytes;
        // SAFETY: the caller vouches for the handles, the arguments, and what the kernel does; there are no extra options.
        unsafe {
            call!(self.launch_kernel(
                function.0,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared,
                stream.0,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            ))
        }
    }

    /// Enqueues a kernel, with the attributes of `config` (`cuLaunchKernelEx`).
    ///
    /// # Safety
    ///
    /// As for [`launch_kernel`](Self::launch_kernel). With programmatic serialisation, the kernel is also sound where
    /// it overlaps the one in front of it.
    pub unsafe fn launch_kernel_ex(
        &self,
        function: Function,
        config: &LaunchConfig,
        stream: Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        config.with_raw(stream, |raw| {
            // SAFETY: the caller vouches for the handles, the arguments, and what the kernel does; the structure and
            // its attributes are whole and live.
            unsafe {
                call!(self.launch_kernel_ex(
                    raw,
                    function.0,
                    arguments.as_mut_ptr(),
                    std::ptr::null_mut(),
                ))
            }
        })
    }

    /// The stream calls `function` with `data`, on a thread of the driver's, and goes on when it has returned
    /// (`cuLaunchHostFunc`). It is not called if the context is lost before.
    ///
    /// # Safety
    ///
    /// `stream` is alive. Calling `function` with `data` is sound on another thread, at any time until it was called
    /// (each time, if it is captured); it does not unwind, and calls nothing of the driver.
    pub unsafe fn launch_host_func(
        &self,
        stream: Stream,
        function: HostFn,
        data: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the function.
        unsafe { call!(self.launch_host_func(stream.0, function, data)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attribute_has_one_slot_and_its_value() {
        let config = LaunchConfig::new([4, 2, 1], [128, 1, 1])
            .shared_bytes(512)
            .priority(-2)
            .cluster([2, 1, 1])
            .programmatic_stream_serialization(true)
            .priority(-5)
            .cluster([4, 1, 1]);
        config.with_raw(Stream::NULL, |raw| {
            assert_eq!((raw.gridDimX, raw.gridDimY, raw.blockDimX), (4, 2, 128));
            assert_eq!((raw.sharedMemBytes, raw.numAttrs), (512, 3));
            // SAFETY: the pointer is to as many attributes, which live in this closure.
            let set = unsafe { std::slice::from_raw_parts(raw.attrs, 3) };
            assert_eq!(
                set.iter().map(|a| a.id as u32).collect::<Vec<_>>(),
                [8, 4, 6]
            );
            // SAFETY: all bytes of the values were set, so that every part can be read.
            unsafe {
                assert_eq!(set[0].value.priority, -5);
                assert_eq!(set[1].value.clusterDim.x, 4);
                assert_eq!(set[2].value.programmaticStreamSerializationAllowed, 1);
            }
        });
        assert_eq!(size_of::<sys::CUlaunchAttribute>(), 72);
    }
}
