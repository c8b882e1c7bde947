//! What every object begins with, and names for those that are only pointed to.

use std::ffi::{c_char, c_int, c_void};

/// An address in an address vector.
pub type fi_addr_t = u64;
/// What every object begins with.
pub type fid_t = *mut fid;

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// Only pointed to.
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque! {
    fid_av_set fid_mc fid_nic fid_pep fid_poll fid_stx fid_wait
    fi_av_set_attr fi_collective_attr fi_ops_collective fi_poll_attr fi_wait_attr
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut fi_ops,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fi_ops {
    pub size: usize,
    pub close: Option<unsafe extern "C" fn(*mut fid) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int>,
    pub control: Option<unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int>,
    pub ops_open: Option<
        unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    >,
    pub tostr: Option<unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int>,
    pub ops_set: Option<
        unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
    >,
}
