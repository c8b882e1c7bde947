//! Stream memory operations: a stream writes a word, or waits for one, without a kernel.
//!
//! Words are 4 or 8 bytes long and aligned to that. A word is "at least" a value if their difference, as a signed
//! number, is not negative. So a counter may wrap round. Words may lie in mapped, pinned or plainly allocated memory,
//! but not in memory of a stream-ordered pool (`CUDA_ERROR_INVALID_VALUE`).

use super::error::{CudaError, Result};
use super::handle::{DevicePtr, Stream};
use super::load::Driver;
use super::sys;
use super::table::call;

/// One operation of a batch (`CUstreamBatchMemOpParams`).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct MemOp(sys::CUstreamBatchMemOpParams);

type Kind = sys::CUstreamBatchMemOpType;

impl MemOp {
    /// An operation whose bytes are zero, except for those that `fill` sets. `fill` sets single fields, so padding
    /// stays zero, too.
    fn build(fill: impl FnOnce(&mut sys::CUstreamBatchMemOpParams)) -> Self {
        let mut raw = sys::CUstreamBatchMemOpParams { pad: [0; 6] };
        fill(&mut raw);
        MemOp(raw)
    }

    /// Waits until a 64-bit word is at least `value`: `word - value`, as a signed number, is not negative.
    pub fn wait64(address: DevicePtr, value: u64) -> Self {
        Self::build(|raw| {
            raw.waitValue.operation = Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64;
            raw.waitValue.address = address.0;
            raw.waitValue.__bindgen_anon_1.value64 = value;
            // `CU_STREAM_WAIT_VALUE_GEQ`.
            raw.waitValue.flags = 0;
        })
    }

    /// Writes a 32-bit word. Every observer that sees it also sees everything that the stream did before.
    pub fn write32(address: DevicePtr, value: u32) -> Self {
        Self::write(
            Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32,
            address,
            u64::from(value),
        )
    }

    /// Writes a 64-bit word. Every observer that sees it also sees everything that the stream did before.
    pub fn write64(address: DevicePtr, value: u64) -> Self {
        Self::write(Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value)
    }

    fn write(kind: Kind, address: DevicePtr, value: u64) -> Self {
        Self::build(|raw| {
            raw.writeValue.operation = kind;
            raw.writeValue.address = address.0;
            raw.writeValue.__bindgen_anon_1.value64 = value;
            // `CU_STREAM_WRITE_VALUE_DEFAULT`.
            raw.writeValue.flags = 0;
        })
    }
}

impl std::fmt::Debug for MemOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: only the constructors make a value, and each sets the kind, which is the first field of each variant
        // of the union.
        let kind = unsafe { self.0.operation };
        f.debug_tuple("MemOp").field(&kind).finish()
    }
}

impl Driver {
    /// Enqueues several operations, in their order, as one (`cuStreamBatchMemOp_v2`). Drivers may refuse more than 256
    /// operations.
    ///
    /// # Safety
    ///
    /// `stream` is alive. Whenever the operations are executed (at each replay, if they are captured), the words lie in
    /// memory of this device, or in memory that is mapped for it. The memory is readable for waits, and writable for
    /// writes. Meanwhile everybody else accesses the words by atomic operations only.
    pub unsafe fn stream_batch_mem_op(&self, stream: Stream, ops: &mut [MemOp]) -> Result<()> {
        let name = self.table.stream_batch_mem_op.name;
        let count = u32::try_from(ops.len())
            .map_err(|_| CudaError::unexpected(name, format!("{} operations", ops.len())))?;
        // SAFETY: the caller vouches for the handle and the words; an operation has the layout of the driver's, and the
        // number is the slice's; 0 is the one value allowed for the flags.
        unsafe { call!(self.stream_batch_mem_op(stream.0, count, ops.as_mut_ptr().cast(), 0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of an operation as the driver reads them.
    fn words(op: MemOp) -> [u64; 6] {
        // SAFETY: all bytes were set: to zero first, then field by field.
        unsafe { op.0.pad }
    }

    #[test]
    fn operations_lie_in_memory_as_the_header_says() {
        let at = DevicePtr(0x1000);
        assert_eq!(size_of::<MemOp>(), 48);
        let wait = words(MemOp::wait64(at, u64::MAX - 1));
        assert_eq!(wait[..3], [4, 0x1000, u64::MAX - 1]);
        assert_eq!(wait[3] as u32, 0);
        let write = words(MemOp::write32(at, 9));
        assert_eq!((write[0], write[2] as u32, write[3] as u32), (2, 9, 0));
        assert_eq!(words(MemOp::write64(at, 9))[..3], [5, 0x1000, 9]);
    }
}
