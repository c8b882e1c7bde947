//! The tables that a library is called by.

use tidegate_ffi::fabric::sys::*;
use tidegate_ffi::fabric::{Functions, Library};

use crate::calls::*;
use crate::open::*;

/// A table, at a place that does not move.
pub(crate) struct Table<T>(T);

// SAFETY: tables hold integers and function pointers.
unsafe impl<T> Sync for Table<T> {}

impl<T> Table<T> {
    pub(crate) fn at(&'static self) -> *mut T {
        (&raw const self.0).cast_mut()
    }
}

const NOTHING: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: None,
    bind: None,
    control: None,
    ops_open: None,
    tostr: None,
    ops_set: None,
};

pub(crate) static FABRIC_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close_fabric),
    ..NOTHING
});
pub(crate) static DOMAIN_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_domain>),
    control: Some(control),
    ops_open: Some(domain_ops),
    ..NOTHING
});
pub(crate) static AV_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_av>),
    ..NOTHING
});
pub(crate) static CQ_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_cq>),
    ..NOTHING
});
pub(crate) static COUNTER_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_cntr>),
    ops_open: Some(counter_ops),
    ..NOTHING
});
pub(crate) static ENDPOINT_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_ep>),
    bind: Some(bind_endpoint),
    control: Some(enable),
    ..NOTHING
});
pub(crate) static MR_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_mr>),
    bind: Some(bind_region),
    control: Some(enable),
    ..NOTHING
});

pub(crate) static FABRIC: Table<fi_ops_fabric> = Table(fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: None,
    eq_open: None,
    wait_open: None,
    trywait: None,
    domain2: None,
});
pub(crate) static DOMAIN: Table<fi_ops_domain> = Table(fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(open_vector),
    cq_open: Some(open_queue),
    endpoint: Some(open_endpoint),
    scalable_ep: None,
    cntr_open: Some(open_counter),
    poll_open: None,
    stx_ctx: None,
    srx_ctx: None,
    query_atomic: Some(query_atomic),
    query_collective: None,
    endpoint2: None,
});
pub(crate) static MR: Table<fi_ops_mr> = Table(fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: None,
    regv: None,
    regattr: Some(register),
});
pub(crate) static AV: Table<fi_ops_av> = Table(fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: None,
    insertsym: None,
    remove: None,
    lookup: None,
    straddr: None,
    av_set: None,
});
pub(crate) static CQ: Table<fi_ops_cq> = Table(fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read_queue),
    readfrom: None,
    readerr: Some(read_failure),
    sread: None,
    sreadfrom: None,
    signal: None,
    strerror: None,
});
pub(crate) static COUNTER: Table<fi_ops_cntr> = Table(fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read_counter),
    readerr: Some(read_failures),
    add: Some(add),
    set: Some(set),
    wait: None,
    adderr: None,
    seterr: None,
});
pub(crate) static CM: Table<fi_ops_cm> = Table(fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: None,
    getname: Some(getname),
    getpeer: None,
    connect: None,
    listen: None,
    accept: None,
    reject: None,
    shutdown: None,
    join: None,
});
pub(crate) static RMA: Table<fi_ops_rma> = Table(fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: None,
    readv: None,
    readmsg: Some(read_msg),
    write: None,
    writev: None,
    writemsg: Some(write_msg),
    inject: None,
    writedata: None,
    injectdata: None,
});
pub(crate) static ATOMIC: Table<fi_ops_atomic> = Table(fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: None,
    writev: None,
    writemsg: None,
    inject: None,
    readwrite: None,
    readwritev: None,
    readwritemsg: None,
    compwrite: None,
    compwritev: None,
    compwritemsg: None,
    writevalid: Some(write_valid),
    readwritevalid: None,
    compwritevalid: None,
});
pub(crate) static CXI_COUNTER: Table<fi_cxi_cntr_ops> = Table(fi_cxi_cntr_ops {
    set_wb_buffer: Some(set_wb_buffer),
    get_mmio_addr: Some(get_mmio_addr),
});
pub(crate) static CXI_DOMAIN: Table<fi_cxi_dom_ops> = Table(fi_cxi_dom_ops {
    cntr_read: None,
    topology: None,
    enable_hybrid_mr_desc: None,
    ep_get_unexp_msgs: None,
    get_dwq_depth: Some(get_dwq_depth),
});

const FUNCTIONS: Functions = Functions {
    version,
    strerror,
    tostr,
    getinfo,
    freeinfo,
    dupinfo,
    fabric: open_fabric,
};

pub(crate) fn library() -> Library {
    // SAFETY: the functions keep to what libfabric says, as far as this crate goes.
    unsafe { Library::from_functions(FUNCTIONS, "the fake card's".into()) }.expect("a library")
}
