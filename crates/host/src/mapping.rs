//! A mapping of shared memory.

use std::os::fd::AsFd;
use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tidegate_hal::memory::Ptr;

/// A mapping of the first bytes of a file, for reading and writing, shared with all other mappings of it. Dropping it
/// unmaps them.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: Ptr,
    bytes: usize,
}

impl Mapping {
    pub(crate) fn new(fd: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses addresses where nothing is mapped yet.
        let base = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, fd, 0) }?;
        let base = Ptr(base.cast());
        Ok(Mapping { base, bytes })
    }

    pub(crate) fn base(&self) -> Ptr {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped these pages, and only their owner drops this. The call can fail only for addresses
        // outside mappings.
        let _ = unsafe { munmap(self.base.0.cast(), self.bytes) };
    }
}
