//! Contexts: a device's state in this process, and which one is the calling thread's.

use std::ffi::c_uint;

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

    /// How the primary context is to behave (`cuDevicePrimaryCtxSetFlags_v2`).
    pub fn primary_ctx_set_flags(&self, device: Device, flags: ContextFlags) -> Result<()> {
        // SAFETY: the function takes numbers, and checks them.
        unsafe { call!(self.primary_ctx_set_flags(device.0, flags.0)) }
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
}
