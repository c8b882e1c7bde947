//! Contexts: the state of a device in this process. At most one context is current on a thread.

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
    /// The device's primary context, which is made if there is none (`cuDevicePrimaryCtxRetain`). The call counts one
    /// more holder, and does not make the context current.
    pub fn primary_ctx_retain(&self, device: Device) -> Result<Context> {
        let mut context = Context::NULL;
        // SAFETY: the function checks the device, and writes one handle into a live variable.
        unsafe { call!(self.primary_ctx_retain(&mut context.0, device.0)) }?;
        Ok(context)
    }

    /// Sets how the primary context behaves (`cuDevicePrimaryCtxSetFlags_v2`).
    pub fn primary_ctx_set_flags(&self, device: Device, flags: ContextFlags) -> Result<()> {
        // SAFETY: the function takes numbers, and checks them.
        unsafe { call!(self.primary_ctx_set_flags(device.0, flags.0)) }
    }

    /// Makes `context` current; [`Context::NULL`] leaves none current (`cuCtxSetCurrent`).
    ///
    /// # Safety
    ///
    /// `context` is null, or it is alive and stays so as long as it is current.
    pub unsafe fn ctx_set_current(&self, context: Context) -> Result<()> {
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(self.ctx_set_current(context.0)) }
    }

    /// The least and the greatest priority of streams in the current context; a smaller number is a greater priority
    /// (`cuCtxGetStreamPriorityRange`).
    pub fn ctx_stream_priority_range(&self) -> Result<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the function writes two ints into two live variables.
        unsafe { call!(self.ctx_get_stream_priority_range(&mut least, &mut greatest)) }?;
        Ok((least, greatest))
    }

    /// How many multiprocessors the current context may use (`cuCtxGetExecAffinity`). MPS can limit it to a part of
    /// those that the device has.
    ///
    /// # Errors
    ///
    /// The driver's; one of them says that the driver or the device has no such limits.
    pub fn ctx_multiprocessors(&self) -> Result<usize> {
        // `CUexecAffinityParam`: the type, an enumeration that the driver writes, and then the number.
        let mut limit: [c_uint; 2] = [0; 2];
        let wanted = sys::CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT;
        // SAFETY: the function writes one structure of two 32-bit fields, to an array of the same layout that lives.
        unsafe { call_optional!(self.ctx_get_exec_affinity(&mut limit, wanted)) }?;
        Ok(limit[1] as usize)
    }
}
