//! Launches of kernels, and of functions on the host.

use std::ffi::c_void;

use super::error::Result;
use super::handle::{Function, Stream};
use super::load::Driver;
use super::sys;
use super::table::call;

/// A function that a stream calls on the host (`CUhostFn`). It must not unwind, and must not call the driver.
pub type HostFn = unsafe extern "C" fn(*mut c_void);

/// How a kernel is launched (`CUlaunchConfig` without its stream).
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    begins_early: bool,
    cooperative: bool,
}

impl LaunchConfig {
    /// A grid of `grid` blocks, each of `block` threads, in x, y and z.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        LaunchConfig {
            grid,
            block,
            shared_bytes: 0,
            begins_early: false,
            cooperative: false,
        }
    }

    /// Gives each block so many bytes of dynamic shared memory.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Sets whether the kernel may begin before the kernel in front of it in the stream has ended, as soon as that one
    /// allows it. The kernel must then wait by itself for the results of that one (`griddepcontrol.wait`).
    pub fn programmatic_stream_serialization(mut self, allowed: bool) -> Self {
        self.begins_early = allowed;
        self
    }

    /// Sets whether the launch is cooperative: then all blocks run at the same time, and a grid for which the device has no
    /// room is refused.
    pub fn cooperative(mut self, cooperative: bool) -> Self {
        self.cooperative = cooperative;
        self
    }

    fn with_raw<T>(&self, stream: Stream, use_it: impl FnOnce(&sys::CUlaunchConfig) -> T) -> T {
        use sys::CUlaunchAttributeID as Id;
        let attribute = |id, set: fn(&mut sys::CUlaunchAttributeValue)| {
            let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
            set(&mut value);
            let pad = [0; 4];
            sys::CUlaunchAttribute { id, pad, value }
        };
        let early = Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut attributes = [
            attribute(early, |value| {
                value.programmaticStreamSerializationAllowed = 1
            }),
            attribute(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, |value| {
                value.cooperative = 1
            }),
        ];
        // They are part of the list from its beginning or its end on.
        let first = usize::from(!self.begins_early);
        let attributes = &mut attributes[first..];
        let count = u32::from(self.begins_early) + u32::from(self.cooperative);
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
            numAttrs: count,
        })
    }
}

impl Driver {
    /// Enqueues a kernel (`cuLaunchKernelEx`).
    ///
    /// # Safety
    ///
    /// `function` and `stream` are alive, and belong to one context. `arguments` has one pointer for each parameter of
    /// the kernel, to a value of the parameter's type. The values are read before this returns. Everything that the
    /// kernel does with them is sound when it is executed. With programmatic serialisation, the kernel is sound even
    /// while it overlaps the one in front of it.
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

    /// Enqueues a call of `function` with `data`, on a thread of the driver (`cuLaunchHostFunc`). The stream goes on
    /// when the function has returned. If the context is lost before, the function is not called.
    ///
    /// # Safety
    ///
    /// `stream` is alive. `function` can soundly be called with `data` on another thread, at any time until it was
    /// called; if the call is captured, once for each replay. The function does not unwind, and does not call the
    /// driver.
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
    fn a_launch_has_the_attributes_that_it_asks_for() {
        let config = LaunchConfig::new([4, 2, 1], [128, 1, 1]).shared_bytes(512);
        config.with_raw(Stream::NULL, |raw| {
            assert_eq!((raw.gridDimX, raw.gridDimY, raw.blockDimX), (4, 2, 128));
            assert_eq!((raw.sharedMemBytes, raw.numAttrs), (512, 0));
        });
        let early = config.programmatic_stream_serialization(true);
        early.with_raw(Stream::NULL, |raw| {
            assert_eq!(raw.numAttrs, 1);
            // SAFETY: the pointer names one attribute, which lives until this closure returns. All its bytes were set.
            unsafe {
                assert_eq!((*raw.attrs).id as u32, 6);
                assert_eq!((*raw.attrs).value.programmaticStreamSerializationAllowed, 1);
            }
        });
        let both = early.cooperative(true);
        both.with_raw(Stream::NULL, |raw| {
            assert_eq!(raw.numAttrs, 2);
            // SAFETY: as above, two attributes.
            unsafe {
                assert_eq!((*raw.attrs.add(1)).id as u32, 2);
                assert_eq!((*raw.attrs.add(1)).value.cooperative, 1);
            }
        });
        assert_eq!(size_of::<sys::CUlaunchAttribute>(), 72);
    }
}
