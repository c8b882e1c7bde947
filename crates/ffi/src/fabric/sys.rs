//! The binary interface of libfabric: structures, tables of operations, constants.
//!
//! # Model
//!
//! Made from the headers of libfabric 1.17 (by bindgen, cut down to what is used, and checked against a C compiler: see
//! `sys/layout.rs`), and committed, so that a build needs no headers. The names are those of the headers, whose
//! documentation (`fi_getinfo(3)`, `fi_endpoint(3)`, …) is theirs. Version 2 has the same layout, but four structures
//! grew at their ends. Of those, two are filled by the caller: [`mr_attr`] and [`cq_err_entry`] have room for what a
//! newer library may look at, or write.
//!
//! # Failure
//!
//! Nothing here checks anything. An operation may be absent (null), and a table may be *shorter* than its structure,
//! which its `size` says; the layer above looks before it calls.

// What the items mean is said in the headers' own documentation.
#![allow(missing_docs, non_camel_case_types, clippy::type_complexity)]

mod consts;
mod cxi;
mod errno;
mod info;
mod layout;
mod msg;
mod objects;
mod tables;
mod transfers;

pub use consts::*;
pub use cxi::*;
pub use errno::*;
pub use info::*;
pub use msg::*;
pub use objects::*;
pub use tables::*;
pub use transfers::*;

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

/// [`fi_mr_attr`] with zeros where newer libraries have more of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mr_attr {
    pub attr: fi_mr_attr,
    pub later: [u64; 12],
}

/// [`fi_cq_err_entry`] with room where newer libraries have more of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cq_err_entry {
    pub entry: fi_cq_err_entry,
    pub later: [u64; 8],
}

/// A piece of memory that is exported as a dmabuf (`struct fi_mr_dmabuf`, of 1.20 and later).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_mr_dmabuf {
    pub fd: std::ffi::c_int,
    pub offset: u64,
    pub len: usize,
    pub base_addr: *mut std::ffi::c_void,
}

/// The memory is described by a [`fi_mr_dmabuf`] (of 1.20 and later).
pub const FI_MR_DMABUF: u64 = 1 << 40;

/// A structure that may be all zeros, as the headers' own initialisation of attributes goes.
///
/// # Safety
///
/// All bytes zero is a value of the type.
pub unsafe trait Zeroed: Sized {
    /// All zeros.
    fn zeroed() -> Self {
        // SAFETY: it is a value of the type, says whoever implements this.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroed {
    ($($name:ident)*) => {$(
        // SAFETY: the structure consists of integers, raw pointers, optional function pointers, unions and arrays of these.
        unsafe impl Zeroed for $name {}
    )*};
}

zeroed! {
    fi_info fi_tx_attr fi_rx_attr fi_ep_attr fi_domain_attr fi_fabric_attr
    fi_av_attr fi_cq_attr fi_cntr_attr fi_eq_attr mr_attr cq_err_entry fi_atomic_attr fi_context2
    fi_msg_rma fi_msg_atomic fi_deferred_work fi_cq_data_entry
    fi_ops fi_ops_fabric fi_ops_domain fi_ops_mr fi_ops_ep fi_ops_cm fi_ops_msg fi_ops_rma
    fi_ops_tagged fi_ops_atomic fi_ops_av fi_ops_cq fi_ops_cntr fi_ops_eq
    fid fid_fabric fid_domain fid_ep fid_av fid_cq fid_cntr fid_mr fid_eq
    fi_cxi_cntr_ops fi_cxi_dom_ops
}
