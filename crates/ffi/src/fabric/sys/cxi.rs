//! The extension of the cxi provider (its `fi_cxi_ext.h`): names, tables, and the layout of a counter's pages.

use std::ffi::{CStr, c_int, c_void};

use super::*;

/// The name by which a counter's [`fi_cxi_cntr_ops`] is opened.
pub const FI_CXI_COUNTER_OPS: &CStr = c"cxi_counter_ops";
/// The name by which a domain's [`fi_cxi_dom_ops`] is opened, in the version that ends with `get_dwq_depth`.
pub const FI_CXI_DOM_OPS_5: &CStr = c"dom_ops_v5";
/// For a deferred work: when it is complete, the hardware writes the completion counter to memory.
pub const FI_CXI_CNTR_WB: u64 = 1 << 62;
/// The largest count of successes.
pub const FI_CXI_CNTR_SUCCESS_MAX: u64 = (1 << 48) - 1;
/// The largest count of failures.
pub const FI_CXI_CNTR_FAILURE_MAX: u64 = (1 << 7) - 1;

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fi_cxi_cntr_ops {
    pub set_wb_buffer: Option<unsafe extern "C" fn(*mut fid, *mut c_void, usize) -> c_int>,
    pub get_mmio_addr:
        Option<unsafe extern "C" fn(*mut fid, *mut *mut c_void, *mut usize) -> c_int>,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fi_cxi_dom_ops {
    pub cntr_read: Unused,
    pub topology: Unused,
    pub enable_hybrid_mr_desc: Unused,
    pub ep_get_unexp_msgs: Unused,
    pub get_dwq_depth: Option<unsafe extern "C" fn(*mut fid, *mut usize) -> c_int>,
}
