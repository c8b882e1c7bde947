//! The extension of the cxi provider (its `fi_cxi_ext.h`): names, tables, and the layout of a counter's pages.

use std::ffi::{CStr, c_int, c_uint, c_void};

use super::*;

/// The name under which a counter gives its [`fi_cxi_cntr_ops`].
pub const FI_CXI_COUNTER_OPS: &CStr = c"cxi_counter_ops";
/// The name under which a domain gives a [`fi_cxi_dom_ops`] that ends after `get_dwq_depth`.
pub const FI_CXI_DOM_OPS_5: &CStr = c"dom_ops_v5";
/// Of a deferred work: the completion counter is written back when it is complete.
pub const FI_CXI_CNTR_WB: u64 = 1 << 62;
/// Of an atomic operation: it is carried out by the PCIe root complex, and not by the NIC.
pub const FI_CXI_PCIE_AMO: u64 = 1 << 57;
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
    pub cntr_read: Option<unsafe extern "C" fn(*mut fid, c_uint, *mut u64, *mut c_void) -> c_int>,
    pub topology:
        Option<unsafe extern "C" fn(*mut fid, *mut c_uint, *mut c_uint, *mut c_uint) -> c_int>,
    pub enable_hybrid_mr_desc: Option<unsafe extern "C" fn(*mut fid, bool) -> c_int>,
    pub ep_get_unexp_msgs: Option<
        unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut fi_addr_t, *mut usize) -> usize,
    >,
    pub get_dwq_depth: Option<unsafe extern "C" fn(*mut fid, *mut usize) -> c_int>,
}
