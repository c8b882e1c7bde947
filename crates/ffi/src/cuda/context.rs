//! Contexts: a device's state in this process, and which one is the calling thread's.

use std::ffi::c_uint;

use super::Limit;
use super::error::Result;
use super::handle::{Context, Device, flags};
use super::load::Driver;
use super::sys;
use super::table::{call, call_optional};

flags! {
    /// How a primary context behaves (`CUctx_flags`).
    ContextFlags {
        /// The driver chooses how the CPU waits.
        SCHED_AUTO = 0;
        /// The CPU spins.
        SCHED_SPIN = 1;
        /// The CPU spins, and yields to other threads.
        SCHED_YIELD = 2;
        /// The CPU sleeps.
        SCHED_BLOCKING_SYNC = 4;
        /// Local memory that once grew is kept: no later launch has to wait for it to be made again.
        LMEM_RESIZE_TO_MAX = 0x10;
        /// Synchronous memory operations always synchronise.
        SYNC_MEMOPS = 0x80;
    }
}

impl Driver {
    /// The device's primary context, made if it is not there, and kept by one more holder (`cuDevicePrimaryCtxRetain`).
    /// It does not become current.
    pub fn primary_ctx_retain(&self, device: Device) -> Result<Context> {
        let mut context = Context::NULL;
        // SAFETY: the function checks the device, and writes one handle, to one that lives.
        unsafe { call!(self.primary_ctx_retain(&mut context.0, device.0)) }?;
        Ok(context)
    }

    /// Gives one hold of the primary context up; the last one destroys it and all that is in it (`cuDevicePrimaryCtxRelease_v2`).
    ///
    /// # Safety
    ///
    /// The caller has a hold from [`primary_ctx_retain`](Self::primary_ctx_retain) to give up; if it is the last, no
    /// handle, address or module of the context is used any more, and the context is current on no thread that goes on
    /// to use it.
    pub unsafe fn primary_ctx_release(&self, device: Device) -> Result<()> {
        // SAFETY: the caller gives up a hold of its own, and uses nothing that goes with it.
        unsafe { call!(self.primary_ctx_release(device.0)) }
    }

    /// How the primary context is to behave (`cuDevicePrimaryCtxSetFlags_v2`).
    pub fn primary_ctx_set_flags(&self, device: Device, flags: ContextFlags) -> Result<()> {
        // SAFETY: the function takes numbers, and checks them.
        unsafe { call!(self.primary_ctx_set_flags(device.0, flags.0)) }
    }

    /// How the primary context behaves, and whether there is one at present (`cuDevicePrimaryCtxGetState`).
    pub fn primary_ctx_state(&self, device: Device) -> Result<(ContextFlags, bool)> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the function writes two ints, to two that live.
        unsafe { call!(self.primary_ctx_get_state(device.0, &mut flags, &mut active)) }?;
        Ok((ContextFlags(flags), active != 0))
    }

    /// Makes `context` current; [`Context::NULL`] leaves none current (`cuCtxSetCurrent`).
    ///
    /// # Safety
    ///
    /// `context` is null, or alive and will be for as long as it is current.
    pub unsafe fn ctx_set_current(&self, context: Context) -> Result<()> {
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(self.ctx_set_current(context.0)) }
    }

    /// The current context, or [`Context::NULL`] (`cuCtxGetCurrent`).
    pub fn ctx_current(&self) -> Result<Context> {
        let mut context = Context::NULL;
        // SAFETY: the function writes one handle, to one that lives.
        unsafe { call!(self.ctx_get_current(&mut context.0)) }?;
        Ok(context)
    }

    /// A limit of the current context, in bytes or in the limit's own unit (`cuCtxGetLimit`).
    pub fn ctx_limit(&self, limit: Limit) -> Result<usize> {
        let mut value = 0;
        // SAFETY: the function writes one size, to one that lives.
        unsafe { call!(self.ctx_get_limit(&mut value, limit)) }?;
        Ok(value)
    }

    /// Asks for a limit of the current context; the driver may round it (`cuCtxSetLimit`). It can wait for all kernels to end.
    pub fn ctx_set_limit(&self, limit: Limit, value: usize) -> Result<()> {
        // SAFETY: the function takes numbers, and checks them.
        unsafe { call!(self.ctx_set_limit(limit, value)) }
    }

    /// Blocks until all that was enqueued in the current context is done (`cuCtxSynchronize`).
    pub fn ctx_synchronize(&self) -> Result<()> {
        // SAFETY: the function takes nothing.
        unsafe { call!(self.ctx_synchronize()) }
    }

    /// The least and the greatest priority of streams in the current context; a smaller number is a greater priority
    /// (`cuCtxGetStreamPriorityRange`).
    pub fn ctx_stream_priority_range(&self) -> Result<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the function writes two ints, to two that live.
        unsafe { call!(self.ctx_get_stream_priority_range(&mut least, &mut greatest)) }?;
        Ok((least, greatest))
    }

    /// How many multiprocessors the current context may use: fewer than the device has, where MPS limits it to a portion
    /// (`cuCtxGetExecAffinity`).
    ///
    /// # Errors
    ///
    /// Also where the driver, or the device, knows no such limits.
    pub fn ctx_multiprocessors(&self) -> Result<usize> {
        // `CUexecAffinityParam`: the type, which is an enumeration that comes out, then the number.
        let mut limit: [c_uint; 2] = [0; 2];
        let wanted = sys::CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT;
        // SAFETY: the function writes one structure of two 32-bit fields, to an array of the same layout that lives.
        unsafe { call_optional!(self.ctx_get_exec_affinity(&mut limit, wanted)) }?;
        Ok(limit[1] as usize)
    }

    /// Lets kernels of the current context access the memory of `peer`'s (`cuCtxEnablePeerAccess`).
    ///
    /// # Errors
    ///
    /// Also when that is so already: [`is_peer_access_already_enabled`](super::CudaError::is_peer_access_already_enabled).
    ///
    /// # Safety
    ///
    /// `peer` is alive.
    pub unsafe fn ctx_enable_peer_access(&self, peer: Context) -> Result<()> {
        // SAFETY: the caller vouches for the handle; 0 is the one value allowed for the flags.
        unsafe { call!(self.ctx_enable_peer_access(peer.0, 0)) }
    }
}
