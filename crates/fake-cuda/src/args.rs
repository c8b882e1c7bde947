//! The arguments of a launch.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use crate::codes;
use crate::ptx::Entry;

/// A function of a module.
pub(crate) struct Function {
    /// The machine's number for it.
    pub(crate) kernel: usize,
    pub(crate) entry: Entry,
    /// The share of a multiprocessor's memory that is shared memory, of a hundred; -1 if nobody has said it.
    pub(crate) carveout: AtomicI32,
    /// How much shared memory a launch may ask for, in bytes.
    pub(crate) most_shared: AtomicI32,
}

/// A launch, with a copy of its arguments.
pub(crate) struct Launch {
    pub(crate) function: Arc<Function>,
    pub(crate) handle: usize,
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared: u32,
    /// Room for each argument, aligned for any type. Only this launch uses it, until it is dropped.
    bytes: *mut [u128],
    /// The offset of each argument.
    pointers: Box<[usize]>,
}

// SAFETY: the arguments are written before the launch is anybody's, and read only from then on.
unsafe impl Send for Launch {}
// SAFETY: as above.
unsafe impl Sync for Launch {}

impl Drop for Launch {
    fn drop(&mut self) {
        // SAFETY: it came of a box, and is given up.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

impl Launch {
    /// # Safety
    ///
    /// `arguments` points to as many pointers as the function has parameters, each to a value of its size.
    pub(crate) unsafe fn new(
        (handle, function): (usize, Arc<Function>),
        (blocks, threads, shared): ([u32; 3], [u32; 3], u32),
        arguments: *const *const c_void,
    ) -> Result<Self, i32> {
        let few = threads
            .iter()
            .map(|count| u64::from(*count))
            .product::<u64>()
            <= 1024;
        let empty = blocks.iter().chain(&threads).any(|count| *count == 0);
        let wide = blocks[1] > 65_535 || blocks[2] > 65_535 || blocks[0] > i32::MAX as u32;
        if !few || empty || wide || threads[2] > 64 || shared > 232_448 {
            return Err(codes::INVALID_VALUE);
        }
        let sizes = &function.entry.sizes;
        if !sizes.is_empty() && arguments.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        let room: usize = sizes.iter().map(|size| size.div_ceil(16)).sum();
        // SAFETY: the caller's promise.
        let from = |index| unsafe { *arguments.add(index) };
        if (0..sizes.len()).any(|index| from(index).is_null()) {
            return Err(codes::INVALID_VALUE);
        }
        let bytes = Box::into_raw(vec![0_u128; room].into_boxed_slice());
        let mut at = bytes.cast::<u128>();
        let mut pointers = Vec::with_capacity(sizes.len());
        for (index, size) in sizes.iter().enumerate() {
            let from = from(index);
            // SAFETY: the caller's promise; room for all sizes was made, each rounded up.
            unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), at.cast(), *size) };
            pointers.push(at.expose_provenance());
            // SAFETY: as above: at most the end.
            at = unsafe { at.add(size.div_ceil(16)) };
        }
        Ok(Launch {
            function,
            handle,
            blocks,
            threads,
            shared,
            bytes,
            pointers: pointers.into(),
        })
    }

    /// The arguments in the driver's form: a pointer to each.
    pub(crate) fn arguments(&self) -> *const *const c_void {
        self.pointers.as_ptr().cast()
    }
}
