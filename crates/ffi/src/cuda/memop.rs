//! Stream memory operations: a stream writes a word, or waits for one, without a kernel.
//!
//! Words are 4 or 8 bytes long and aligned to that. "At least" means that the *difference*, with a sign, is not
//! negative, so that a counter may wrap round. Words may lie in mapped, pinned or plainly allocated memory, and not in
//! that of a stream-ordered pool (`CUDA_ERROR_INVALID_VALUE`).

use super::error::{CudaError, Result};
use super::handle::{DevicePtr, Stream, flags};
use super::load::Driver;
use super::sys;
use super::table::call;

flags! {
    /// What a wait waits for (`CUstreamWaitValue_flags`): one of the comparisons, and perhaps [`FLUSH`](Self::FLUSH).
    WaitFlags {
        /// The word is at least the value: `(word - value)`, with a sign, is not negative.
        GEQ = 0;
        /// The word is the value.
        EQ = 1;
        /// The word and the value have a common bit.
        AND = 2;
        /// Some bit is set neither in the word nor in the value.
        NOR = 3;
        /// What other devices wrote before is flushed after the wait, where the device can
        /// (`CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES`).
        FLUSH = 1 << 30;
    }
}

flags! {
    /// How a write is ordered (`CUstreamWriteValue_flags`; the driver refuses writes without a barrier in this version
    /// of the functions).
    WriteFlags {
        /// After all that the stream did before, for everybody.
        DEFAULT = 0;
    }
}

/// For whom a barrier orders (`CUstreamMemoryBarrier_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBarrier {
    /// Everybody.
    System,
    /// This device.
    Gpu,
}

/// One operation of a batch (`CUstreamBatchMemOpParams`).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct MemOp(sys::CUstreamBatchMemOpParams);

type Kind = sys::CUstreamBatchMemOpType;

impl MemOp {
    /// All bytes zero but those that `fill` sets, field by field: padding stays zero as well.
    fn build(fill: impl FnOnce(&mut sys::CUstreamBatchMemOpParams)) -> Self {
        let mut raw = sys::CUstreamBatchMemOpParams { pad: [0; 6] };
        fill(&mut raw);
        MemOp(raw)
    }

    fn wait(kind: Kind, address: DevicePtr, value: u64, flags: WaitFlags) -> Self {
        Self::build(|raw| {
            raw.waitValue.operation = kind;
            raw.waitValue.address = address.0;
            raw.waitValue.__bindgen_anon_1.value64 = value;
            raw.waitValue.flags = flags.0;
        })
    }

    fn write(kind: Kind, address: DevicePtr, value: u64, flags: WriteFlags) -> Self {
        Self::build(|raw| {
            raw.writeValue.operation = kind;
            raw.writeValue.address = address.0;
            raw.writeValue.__bindgen_anon_1.value64 = value;
            raw.writeValue.flags = flags.0;
        })
    }

    /// Wait for a 32-bit word.
    pub fn wait32(address: DevicePtr, value: u32, flags: WaitFlags) -> Self {
        Self::wait(
            Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32,
            address,
            u64::from(value),
            flags,
        )
    }

    /// Wait for a 64-bit word.
    pub fn wait64(address: DevicePtr, value: u64, flags: WaitFlags) -> Self {
        Self::wait(Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags)
    }

    /// Write a 32-bit word.
    pub fn write32(address: DevicePtr, value: u32, flags: WriteFlags) -> Self {
        Self::write(
            Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32,
            address,
            u64::from(value),
            flags,
        )
    }

    /// Write a 64-bit word.
    pub fn write64(address: DevicePtr, value: u64, flags: WriteFlags) -> Self {
        Self::write(Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags)
    }

    /// Flush what other devices wrote, where the device can.
    pub fn flush_remote_writes() -> Self {
        Self::build(|raw| {
            raw.flushRemoteWrites.operation = Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
        })
    }

    /// A barrier between what comes before and after in the batch.
    pub fn memory_barrier(scope: MemoryBarrier) -> Self {
        Self::build(|raw| {
            raw.memoryBarrier.operation = Kind::CU_STREAM_MEM_OP_BARRIER;
            raw.memoryBarrier.flags = match scope {
                MemoryBarrier::System => 0,
                MemoryBarrier::Gpu => 1,
            };
        })
    }
}

impl std::fmt::Debug for MemOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: every constructor sets the kind, which is the first field of each part; only they make one.
        let kind = unsafe { self.0.operation };
        f.debug_tuple("MemOp").field(&kind).finish()
    }
}

impl Driver {
    /// Enqueues several operations, in their order, as one (`cuStreamBatchMemOp_v2`). The driver may take no more than 256.
    ///
    /// # Safety
    ///
    /// `stream` is alive. When the operations are executed (each time, if they are captured), the words are there:
    /// memory of this device or mapped for it, readable for waits, writable for writes, and nobody accesses them
    /// meanwhile but as atomic words.
    pub unsafe fn stream_batch_mem_op(&self, stream: Stream, ops: &mut [MemOp]) -> Result<()> {
        let name = self.table.stream_batch_mem_op.name;
        let count = u32::try_from(ops.len())
            .map_err(|_| CudaError::unexpected(name, format!("{} operations", ops.len())))?;
        // SAFETY: the caller vouches for the handle and the words; an operation has the layout of the driver's, and the
        // number is the slice's; 0 is the one value allowed for the flags.
        unsafe { call!(self.stream_batch_mem_op(stream.0, count, ops.as_mut_ptr().cast(), 0)) }
    }

    /// Enqueues the write of a 32-bit word (`cuStreamWriteValue32_v2`).
    ///
    /// # Safety
    ///
    /// As for [`stream_batch_mem_op`](Self::stream_batch_mem_op).
    pub unsafe fn stream_write_value32(
        &self,
        stream: Stream,
        address: DevicePtr,
        value: u32,
        flags: WriteFlags,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the word.
        unsafe { call!(self.stream_write_value32(stream.0, address.0, value, flags.0)) }
    }

    /// Enqueues the write of a 64-bit word (`cuStreamWriteValue64_v2`).
    ///
    /// # Safety
    ///
    /// As for [`stream_batch_mem_op`](Self::stream_batch_mem_op).
    pub unsafe fn stream_write_value64(
        &self,
        stream: Stream,
        address: DevicePtr,
        value: u64,
        flags: WriteFlags,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the word.
        unsafe { call!(self.stream_write_value64(stream.0, address.0, value, flags.0)) }
    }

    /// Enqueues the wait for a 32-bit word (`cuStreamWaitValue32_v2`).
    ///
    /// # Safety
    ///
    /// As for [`stream_batch_mem_op`](Self::stream_batch_mem_op).
    pub unsafe fn stream_wait_value32(
        &self,
        stream: Stream,
        address: DevicePtr,
        value: u32,
        flags: WaitFlags,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the word.
        unsafe { call!(self.stream_wait_value32(stream.0, address.0, value, flags.0)) }
    }

    /// Enqueues the wait for a 64-bit word (`cuStreamWaitValue64_v2`).
    ///
    /// # Safety
    ///
    /// As for [`stream_batch_mem_op`](Self::stream_batch_mem_op).
    pub unsafe fn stream_wait_value64(
        &self,
        stream: Stream,
        address: DevicePtr,
        value: u64,
        flags: WaitFlags,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the word.
        unsafe { call!(self.stream_wait_value64(stream.0, address.0, value, flags.0)) }
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
        let wait = words(MemOp::wait64(
            at,
            u64::MAX - 1,
            WaitFlags::EQ | WaitFlags::FLUSH,
        ));
        assert_eq!(wait[..3], [4, 0x1000, u64::MAX - 1]);
        assert_eq!(wait[3] as u32, 1 | 1 << 30);
        let wait = words(MemOp::wait32(at, 7, WaitFlags::GEQ));
        assert_eq!((wait[0], wait[2] as u32), (1, 7));
        let write = words(MemOp::write32(at, 9, WriteFlags::DEFAULT));
        assert_eq!((write[0], write[2] as u32, write[3] as u32), (2, 9, 0));
        assert_eq!(
            words(MemOp::write64(at, 9, WriteFlags::DEFAULT))[..3],
            [5, 0x1000, 9]
        );
        assert_eq!(words(MemOp::flush_remote_writes()), [3, 0, 0, 0, 0, 0]);
        let barrier = words(MemOp::memory_barrier(MemoryBarrier::Gpu));
        assert_eq!(barrier[0], 6 | 1 << 32);
    }
}
