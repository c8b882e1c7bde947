//! Structures that may be all zeros.

use super::*;

/// A structure that may be all zeros, as programs in C initialise attributes.
///
/// # Safety
///
/// All bytes zero must be a value of the type.
pub unsafe trait Zeroed: Sized {
    /// All zeros.
    fn zeroed() -> Self {
        // SAFETY: all zeros is a value of the type, as the implementation promises.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroed {
    ($($name:ident)*) => {$(
        // SAFETY: the structure consists of integers, raw pointers, optional function pointers, unions and arrays of
        // these.
        unsafe impl Zeroed for $name {}
    )*};
}

zeroed! {
    fi_info fi_tx_attr fi_rx_attr fi_ep_attr fi_domain_attr fi_fabric_attr
    fi_av_attr fi_cq_attr fi_cntr_attr mr_attr cq_err_entry
    fi_msg_rma fi_msg_atomic fi_cq_data_entry
    fid fid_fabric fid_domain fid_ep fid_av fid_cq fid_cntr fid_mr
}
