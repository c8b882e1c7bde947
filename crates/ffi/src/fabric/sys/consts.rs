//! Constants, by the names that they have in the headers.

use std::ffi::{c_int, c_uint};

pub type fi_av_type = c_uint;
pub const FI_AV_UNSPEC: fi_av_type = 0;
pub const FI_AV_TABLE: fi_av_type = 2;

pub type fi_progress = c_uint;
pub const FI_PROGRESS_UNSPEC: fi_progress = 0;
pub const FI_PROGRESS_AUTO: fi_progress = 1;
pub const FI_PROGRESS_MANUAL: fi_progress = 2;

pub type fi_threading = c_uint;
pub const FI_THREAD_SAFE: fi_threading = 1;
pub const FI_THREAD_DOMAIN: fi_threading = 3;

pub type fi_resource_mgmt = c_uint;

pub type fi_ep_type = c_uint;
pub const FI_EP_UNSPEC: fi_ep_type = 0;
pub const FI_EP_RDM: fi_ep_type = 3;

pub type fi_wait_obj = c_uint;
pub const FI_WAIT_NONE: fi_wait_obj = 0;
pub const FI_WAIT_UNSPEC: fi_wait_obj = 1;
pub const FI_WAIT_FD: fi_wait_obj = 3;
pub const FI_WAIT_YIELD: fi_wait_obj = 5;

pub type fi_cq_format = c_uint;
pub const FI_CQ_FORMAT_DATA: fi_cq_format = 3;

pub type fi_cq_wait_cond = c_uint;

pub type fi_cntr_events = c_uint;
pub const FI_CNTR_EVENTS_COMP: fi_cntr_events = 0;

pub type fi_hmem_iface = c_uint;

pub type fi_datatype = c_uint;
pub const FI_UINT64: fi_datatype = 7;

pub type fi_op = c_uint;
pub const FI_SUM: fi_op = 2;

pub type fi_op_type = c_uint;
pub const FI_OP_READ: fi_op_type = 4;
pub const FI_OP_WRITE: fi_op_type = 5;
pub const FI_OP_ATOMIC: fi_op_type = 6;
pub const FI_OP_CNTR_SET: fi_op_type = 9;
pub const FI_OP_CNTR_ADD: fi_op_type = 10;

// Capabilities, and flags of operations.
pub const FI_MSG: u64 = 2;
pub const FI_RMA: u64 = 4;
pub const FI_TAGGED: u64 = 8;
pub const FI_ATOMIC: u64 = 1 << 4;
pub const FI_READ: u64 = 1 << 8;
pub const FI_WRITE: u64 = 1 << 9;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_TRANSMIT: u64 = 1 << 11;
pub const FI_REMOTE_READ: u64 = 1 << 12;
pub const FI_REMOTE_WRITE: u64 = 1 << 13;
pub const FI_MULTI_RECV: u64 = 1 << 16;
pub const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub const FI_MORE: u64 = 1 << 18;
pub const FI_TRIGGER: u64 = 1 << 20;
pub const FI_FENCE: u64 = 1 << 21;
pub const FI_COMPLETION: u64 = 1 << 24;
pub const FI_INJECT: u64 = 1 << 25;
pub const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub const FI_HMEM: u64 = 1 << 47;
pub const FI_LOCAL_COMM: u64 = 1 << 51;
pub const FI_REMOTE_COMM: u64 = 1 << 52;
pub const FI_RMA_EVENT: u64 = 1 << 56;
pub const FI_SOURCE: u64 = 1 << 57;
pub const FI_DIRECTED_RECV: u64 = 1 << 59;
pub const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;

// Modes: what a provider demands of its user.
pub const FI_CONTEXT: u64 = 1 << 59;
pub const FI_MSG_PREFIX: u64 = 1 << 58;
pub const FI_ASYNC_IOV: u64 = 1 << 57;
pub const FI_RX_CQ_DATA: u64 = 1 << 56;
pub const FI_CONTEXT2: u64 = 1 << 52;

// What a provider demands of registered memory.
pub const FI_MR_BASIC: c_int = 1;
pub const FI_MR_SCALABLE: c_int = 2;
pub const FI_MR_LOCAL: c_int = 4;
pub const FI_MR_RAW: c_int = 8;
pub const FI_MR_VIRT_ADDR: c_int = 16;
pub const FI_MR_ALLOCATED: c_int = 32;
pub const FI_MR_PROV_KEY: c_int = 64;
pub const FI_MR_MMU_NOTIFY: c_int = 128;
pub const FI_MR_RMA_EVENT: c_int = 256;
pub const FI_MR_ENDPOINT: c_int = 512;
pub const FI_MR_HMEM: c_int = 1024;

// Order of operations.
pub const FI_ORDER_RAR: u64 = 1;
pub const FI_ORDER_RAW: u64 = 2;
pub const FI_ORDER_RAS: u64 = 4;
pub const FI_ORDER_WAR: u64 = 8;
pub const FI_ORDER_WAW: u64 = 1 << 4;
pub const FI_ORDER_WAS: u64 = 1 << 5;
pub const FI_ORDER_SAR: u64 = 1 << 6;
pub const FI_ORDER_SAW: u64 = 1 << 7;
pub const FI_ORDER_SAS: u64 = 1 << 8;
pub const FI_ORDER_RMA_WAW: u64 = 1 << 35;
pub const FI_ORDER_ATOMIC_WAW: u64 = 1 << 39;

// Formats of addresses.
pub const FI_FORMAT_UNSPEC: u32 = 0;
pub const FI_SOCKADDR: u32 = 1;
pub const FI_SOCKADDR_IN: u32 = 2;
pub const FI_SOCKADDR_IN6: u32 = 3;
pub const FI_ADDR_STR: u32 = 9;
pub const FI_ADDR_CXI: u32 = 15;

// Commands of `control`.
pub const FI_ENABLE: c_int = 6;
pub const FI_GET_RAW_MR: c_int = 8;
pub const FI_MAP_RAW_MR: c_int = 9;
pub const FI_UNMAP_KEY: c_int = 10;
pub const FI_QUEUE_WORK: c_int = 11;
pub const FI_CANCEL_WORK: c_int = 12;

// Values that mean "no such thing".
pub const FI_ADDR_NOTAVAIL: u64 = u64::MAX;
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;
