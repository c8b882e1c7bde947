//! The tables that a library is called by.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use tidegate_ffi::fabric::sys::*;
use tidegate_ffi::fabric::{API_VERSION, Functions, Library};

use crate::card::{Card, Kind, Operation, What};
use crate::find;

/// A description and its parts.
#[repr(C)]
struct Whole {
    info: fi_info,
    tx: fi_tx_attr,
    rx: fi_rx_attr,
    ep: fi_ep_attr,
    domain: fi_domain_attr,
    fabric: fi_fabric_attr,
}

/// An object: what the library's user sees of it, and what is behind that.
#[repr(C)]
struct Thing<H> {
    head: H,
    card: Arc<Card>,
    id: u64,
    kind: Kind,
}

/// # Safety
///
/// `object` is one of ours, and its head is an `H`.
unsafe fn thing<'a, H>(object: *mut H) -> &'a Thing<H> {
    // SAFETY: the caller's promise.
    unsafe { &*object.cast::<Thing<H>>() }
}

fn give<H>(head: H, card: Arc<Card>, kind: Kind) -> *mut H {
    let id = card.make(kind);
    give_as(head, card, kind, id)
}

fn give_as<H>(head: H, card: Arc<Card>, kind: Kind, id: u64) -> *mut H {
    Box::into_raw(Box::new(Thing {
        head,
        card,
        id,
        kind,
    }))
    .cast()
}

/// # Safety
///
/// `fid` begins an object of ours whose head is an `H`.
unsafe extern "C" fn close<H>(fid: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { thing::<H>(fid.cast()) };
    if !object.card.close(object.kind, object.id) {
        return -FI_EBUSY;
    }
    // SAFETY: it was made by `give_as`, and is not used again.
    drop(unsafe { Box::from_raw(fid.cast::<Thing<H>>()) });
    0
}

unsafe extern "C" fn close_fabric(fid: *mut fid) -> c_int {
    // SAFETY: the library's user closes what `open_fabric` gave.
    drop(unsafe { Box::from_raw(fid.cast::<fid_fabric>()) });
    0
}

unsafe extern "C" fn version() -> u32 {
    1 << 16 | 17
}

unsafe extern "C" fn strerror(_: c_int) -> *const c_char {
    c"the fake card refuses".as_ptr()
}

unsafe extern "C" fn tostr(
    buffer: *mut c_char,
    _: usize,
    _: *const c_void,
    _: c_int,
) -> *mut c_char {
    buffer
}

/// # Safety
///
/// `from` is null, or from here.
unsafe extern "C" fn dupinfo(from: *const fi_info) -> *mut fi_info {
    let raw = Box::into_raw(Box::new(Whole {
        info: fi_info::zeroed(),
        tx: fi_tx_attr::zeroed(),
        rx: fi_rx_attr::zeroed(),
        ep: fi_ep_attr::zeroed(),
        domain: fi_domain_attr::zeroed(),
        fabric: fi_fabric_attr::zeroed(),
    }));
    // SAFETY: it is from a box; the caller vouches for the other.
    unsafe {
        if !from.is_null() {
            raw.copy_from_nonoverlapping(from.cast::<Whole>(), 1);
        }
        (*raw).info.next = null_mut();
        (*raw).info.tx_attr = &raw mut (*raw).tx;
        (*raw).info.rx_attr = &raw mut (*raw).rx;
        (*raw).info.ep_attr = &raw mut (*raw).ep;
        (*raw).info.domain_attr = &raw mut (*raw).domain;
        (*raw).info.fabric_attr = &raw mut (*raw).fabric;
    }
    raw.cast()
}

/// # Safety
///
/// `info` is from [`dupinfo`].
unsafe extern "C" fn freeinfo(info: *mut fi_info) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(info.cast::<Whole>()) });
}

/// # Safety
///
/// As `fi_getinfo`.
unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _: *const c_char,
    _: u64,
    hints: *const fi_info,
    found: *mut *mut fi_info,
) -> c_int {
    assert_eq!(version, API_VERSION);
    // SAFETY: the hints are complete; strings end with a NUL; the caller's pointer lives.
    unsafe {
        let provider = (*(*hints).fabric_attr).prov_name;
        let (domain, wanted) = ((*hints).domain_attr, MODES);
        let known = provider.is_null() || CStr::from_ptr(provider) == c"cxi";
        if node.is_null() || !known || (*domain).mr_mode & wanted != wanted {
            return -FI_ENODATA;
        }
        let node = CStr::from_ptr(node);
        let Some(card) = node.to_str().ok().and_then(find) else {
            return -FI_ENODATA;
        };
        let whole = dupinfo(std::ptr::null()).cast::<Whole>();
        (*whole).info.caps = FI_RMA | FI_MSG | FI_ATOMIC | FI_RMA_EVENT;
        // Names are few, and live as long as the process.
        (*whole).fabric.prov_name = c"cxi".as_ptr().cast_mut();
        (*whole).domain.name = CString::from(node).into_raw();
        (*whole).domain.threading = (*domain).threading;
        (*whole).domain.mr_mode = MODES;
        (*whole).domain.mr_key_size = 8;
        (*whole).domain.cq_data_size = if card.config.data { 8 } else { 0 };
        (*whole).domain.data_progress = FI_PROGRESS_MANUAL;
        (*whole).ep.max_msg_size = 1 << 20;
        (*whole).tx.size = 256;
        *found = whole.cast();
    }
    0
}

/// What memory needs.
const MODES: c_int = FI_MR_ENDPOINT | FI_MR_PROV_KEY;

/// # Safety
///
/// As `fi_fabric`.
unsafe extern "C" fn open_fabric(
    _: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    _: *mut c_void,
) -> c_int {
    let mut head = fid_fabric::zeroed();
    head.fid.ops = FABRIC_FID.at();
    head.ops = FABRIC.at();
    // SAFETY: the caller vouches for the pointer.
    unsafe { *fabric = Box::into_raw(Box::new(head)) };
    0
}

/// # Safety
///
/// As `fi_domain`.
unsafe extern "C" fn open_domain(
    _: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the description is from `getinfo`, and the caller vouches for the pointer.
    unsafe {
        let name = CStr::from_ptr((*(*info).domain_attr).name);
        let Some(card) = name.to_str().ok().and_then(find) else {
            return -FI_ENODEV;
        };
        let mut head = fid_domain::zeroed();
        head.fid.ops = DOMAIN_FID.at();
        head.ops = DOMAIN.at();
        head.mr = MR.at();
        *domain = give(head, card, Kind::Domain);
    }
    0
}

/// # Safety
///
/// As `fi_av_open`.
unsafe extern "C" fn open_vector(
    domain: *mut fid_domain,
    _: *mut fi_av_attr,
    vector: *mut *mut fid_av,
    _: *mut c_void,
) -> c_int {
    let mut head = fid_av::zeroed();
    head.fid.ops = AV_FID.at();
    head.ops = AV.at();
    // SAFETY: the caller vouches for both.
    unsafe { *vector = give(head, thing(domain).card.clone(), Kind::Vector) };
    0
}

/// # Safety
///
/// As `fi_cq_open`.
unsafe extern "C" fn open_queue(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    queue: *mut *mut fid_cq,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for all three.
    unsafe {
        if (*attr).wait_obj != FI_WAIT_NONE {
            return -FI_ENOSYS;
        }
        let mut head = fid_cq::zeroed();
        head.fid.ops = CQ_FID.at();
        head.ops = CQ.at();
        *queue = give(head, thing(domain).card.clone(), Kind::Queue);
    }
    0
}

/// # Safety
///
/// As `fi_cntr_open`.
unsafe extern "C" fn open_counter(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    counter: *mut *mut fid_cntr,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for all three.
    unsafe {
        if (*attr).wait_obj != FI_WAIT_NONE {
            return -FI_ENOSYS;
        }
        let mut head = fid_cntr::zeroed();
        head.fid.ops = COUNTER_FID.at();
        head.ops = COUNTER.at();
        *counter = give(head, thing(domain).card.clone(), Kind::Counter);
    }
    0
}

/// # Safety
///
/// As `fi_endpoint`.
unsafe extern "C" fn open_endpoint(
    domain: *mut fid_domain,
    _: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    let mut head = fid_ep::zeroed();
    head.fid.ops = ENDPOINT_FID.at();
    head.cm = CM.at();
    head.rma = RMA.at();
    head.atomic = ATOMIC.at();
    // SAFETY: the caller vouches for both.
    unsafe { *endpoint = give(head, thing(domain).card.clone(), Kind::Endpoint) };
    0
}

/// # Safety
///
/// As `fi_mr_regattr`.
unsafe extern "C" fn register(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    _: u64,
    region: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the caller vouches for all three.
    unsafe {
        let card = thing::<fid_domain>(domain.cast()).card.clone();
        let part = *(*attr).mr_iov;
        let key = card.register(part.iov_base.expose_provenance(), part.iov_len);
        let mut head = fid_mr::zeroed();
        head.fid.ops = MR_FID.at();
        head.key = key;
        *region = give_as(head, card, Kind::Region, key);
    }
    0
}

/// # Safety
///
/// Both are objects of ours; the first is a region.
unsafe extern "C" fn bind_region(region: *mut fid, endpoint: *mut fid, _: u64) -> c_int {
    // SAFETY: the caller's promise; only endpoints are bound to regions here.
    unsafe {
        let region = thing::<fid_mr>(region.cast());
        let endpoint = thing::<fid_ep>(endpoint.cast()).id;
        region.card.bind_region(region.id, endpoint);
    }
    0
}

/// # Safety
///
/// Both are objects of ours; the first is an endpoint.
unsafe extern "C" fn bind_endpoint(endpoint: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller's promise. What the other is, its table says.
    unsafe {
        let endpoint = thing::<fid_ep>(endpoint.cast());
        if (*other).ops == CQ_FID.at() {
            let queue = thing::<fid_cq>(other.cast()).id;
            endpoint.card.bind_queue(endpoint.id, queue, flags);
        } else if (*other).ops == COUNTER_FID.at() {
            if flags != FI_REMOTE_WRITE {
                return -FI_EOPNOTSUPP;
            }
            let counter = thing::<fid_cntr>(other.cast()).id;
            endpoint.card.bind_counter(endpoint.id, counter);
        }
    }
    0
}

unsafe extern "C" fn enable(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}

/// # Safety
///
/// As `fi_control` of a domain.
unsafe extern "C" fn control(domain: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let card = unsafe { &thing::<fid_domain>(domain.cast()).card };
    let work = argument.cast::<fi_deferred_work>();
    match command {
        // SAFETY: the command takes a work.
        FI_QUEUE_WORK => unsafe { queue_work(card, work) },
        FI_CANCEL_WORK if card.config.cancels => {
            if card.cancel(work as usize) {
                0
            } else {
                -FI_EINVAL
            }
        }
        _ => -FI_ENOSYS,
    }
}

/// # Safety
///
/// The work is complete.
unsafe fn queue_work(card: &Arc<Card>, work: *mut fi_deferred_work) -> c_int {
    // SAFETY: the caller's promise: what the work points to lives, and is of this card.
    unsafe {
        let id = |counter: *mut fid_cntr| thing(counter).id;
        let counter = (*work).completion_cntr;
        let counter = (!counter.is_null()).then(|| id(counter));
        let count = |set| {
            let op = *(*work).op.cntr;
            let (counter, value) = (id(op.cntr), op.value);
            (
                0,
                0,
                0,
                What::Count {
                    counter,
                    value,
                    set,
                },
            )
        };
        let rma = |reads: bool| {
            let op = &*(*work).op.rma;
            let (endpoint, flags) = (thing(op.ep).id, op.flags);
            let what = transfer(&op.msg, flags, reads);
            (endpoint, op.msg.addr, flags, what)
        };
        let (endpoint, peer, flags, what) = match (*work).op_type {
            FI_OP_WRITE => rma(false),
            FI_OP_READ => rma(true),
            FI_OP_ATOMIC => {
                let op = &*(*work).op.atomic;
                let (part, target) = (&*op.msg.msg_iov, &*op.msg.rma_iov);
                if (op.msg.datatype, op.msg.op, part.count) != (FI_UINT64, FI_SUM, 1) {
                    return -FI_EOPNOTSUPP;
                }
                let what = What::Add {
                    operand: part.addr.expose_provenance(),
                    key: target.key,
                    at: target.addr,
                };
                (thing(op.ep).id, op.msg.addr, op.flags, what)
            }
            FI_OP_CNTR_ADD => count(false),
            FI_OP_CNTR_SET => count(true),
            _ => return -FI_ENOSYS,
        };
        if matches!(what, What::Write { data: Some(_), .. }) && !card.config.data {
            return -FI_EINVAL;
        }
        let operation = Operation {
            what,
            endpoint,
            peer,
            context: (&raw const (*work).context) as usize,
            flags,
            counter,
            work: Some(work as usize),
        };
        if card.defer(id((*work).triggering_cntr), (*work).threshold, operation) {
            0
        } else {
            -card.config.full
        }
    }
}

/// # Safety
///
/// The message is complete, of one part at either end.
unsafe fn transfer(message: &fi_msg_rma, flags: u64, reads: bool) -> What {
    // SAFETY: the caller's promise.
    let (local, remote) = unsafe { (&*message.msg_iov, &*message.rma_iov) };
    let (here, len) = (local.iov_base.expose_provenance(), local.iov_len);
    let (key, at) = (remote.key, remote.addr);
    if reads {
        let into = here;
        return What::Read { into, len, key, at };
    }
    What::Write {
        from: here,
        len,
        key,
        at,
        data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
    }
}

/// # Safety
///
/// As `fi_writemsg` or `fi_readmsg`.
unsafe fn post(
    endpoint: *mut fid_ep,
    message: *const fi_msg_rma,
    flags: u64,
    reads: bool,
) -> isize {
    // SAFETY: the caller's promise.
    let (endpoint, message) = unsafe { (thing(endpoint), &*message) };
    // SAFETY: as above.
    let what = unsafe { transfer(message, flags, reads) };
    if matches!(what, What::Write { data: Some(_), .. }) && !endpoint.card.config.data {
        return -(FI_EINVAL as isize);
    }
    endpoint.card.post(Operation {
        what,
        endpoint: endpoint.id,
        peer: message.addr,
        context: message.context as usize,
        flags,
        counter: None,
        work: None,
    });
    0
}

unsafe extern "C" fn write_msg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as for `fi_writemsg`.
    unsafe { post(ep, message, flags, false) }
}

unsafe extern "C" fn read_msg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as for `fi_readmsg`.
    unsafe { post(ep, message, flags, true) }
}

/// # Safety
///
/// As `fi_getname`.
unsafe extern "C" fn getname(endpoint: *mut fid, address: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let room = std::mem::replace(&mut *len, 8);
        if room < 8 {
            return -FI_ETOOSMALL;
        }
        let id = thing::<fid_ep>(endpoint.cast()).id;
        address.cast::<u64>().write_unaligned(id);
    }
    0
}

/// # Safety
///
/// As `fi_av_insert`, for one address.
unsafe extern "C" fn insert(
    _: *mut fid_av,
    address: *const c_void,
    _: usize,
    number: *mut fi_addr_t,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise. An address is a number already.
    unsafe { *number = address.cast::<u64>().read_unaligned() };
    1
}

/// # Safety
///
/// As `fi_cq_read`.
unsafe extern "C" fn read_queue(queue: *mut fid_cq, into: *mut c_void, most: usize) -> isize {
    // SAFETY: the caller's promise.
    let queue = unsafe { thing(queue) };
    match queue.card.entries(queue.id, most) {
        Err(()) => -(FI_EAVAIL as isize),
        Ok(entries) if entries.is_empty() => -(FI_EAGAIN as isize),
        Ok(entries) => {
            for (at, entry) in entries.iter().enumerate() {
                // SAFETY: there is room for as many.
                unsafe { into.cast::<fi_cq_data_entry>().add(at).write(*entry) };
            }
            entries.len() as isize
        }
    }
}

/// # Safety
///
/// As `fi_cq_readerr`.
unsafe extern "C" fn read_failure(queue: *mut fid_cq, into: *mut fi_cq_err_entry, _: u64) -> isize {
    // SAFETY: the caller's promise.
    let queue = unsafe { thing(queue) };
    let Some(context) = queue.card.failure(queue.id) else {
        return -(FI_EAGAIN as isize);
    };
    // SAFETY: as above.
    unsafe {
        (*into).op_context = std::ptr::without_provenance_mut(context);
        (*into).err = FI_EIO;
        (*into).prov_errno = 1;
    }
    1
}

unsafe extern "C" fn read_counter(counter: *mut fid_cntr) -> u64 {
    // SAFETY: the library's user has it open.
    let counter = unsafe { thing(counter) };
    counter.card.count(counter.id).0
}

unsafe extern "C" fn read_failures(counter: *mut fid_cntr) -> u64 {
    // SAFETY: likewise.
    let counter = unsafe { thing(counter) };
    counter.card.count(counter.id).1
}

unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: likewise.
    let counter = unsafe { thing(counter) };
    counter.card.change(counter.id, |count| *count += value);
    0
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: likewise.
    let counter = unsafe { thing(counter) };
    counter.card.change(counter.id, |count| *count = value);
    0
}

/// # Safety
///
/// As `fi_query_atomic`.
unsafe extern "C" fn query_atomic(
    _: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    if (datatype, op, flags) != (FI_UINT64, FI_SUM, 0) {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    unsafe { ((*attr).count, (*attr).size) = (1, 8) };
    0
}

/// # Safety
///
/// As `fi_atomicvalid`.
unsafe extern "C" fn write_valid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    if (datatype, op) != (FI_UINT64, FI_SUM) {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    unsafe { *count = 1 };
    0
}

/// # Safety
///
/// As `fi_open_ops` of a counter.
unsafe extern "C" fn counter_ops(
    counter: *mut fid,
    name: *const c_char,
    _: u64,
    ops: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let config = &thing::<fid_cntr>(counter.cast()).card.config;
        if CStr::from_ptr(name) != FI_CXI_COUNTER_OPS || !(config.pages || config.back) {
            return -FI_EINVAL;
        }
        *ops = CXI_COUNTER.at().cast();
    }
    0
}

/// # Safety
///
/// As `fi_open_ops` of a domain.
unsafe extern "C" fn domain_ops(
    _: *mut fid,
    name: *const c_char,
    _: u64,
    ops: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if CStr::from_ptr(name) != FI_CXI_DOM_OPS_5 {
            return -FI_EINVAL;
        }
        *ops = CXI_DOMAIN.at().cast();
    }
    0
}

/// # Safety
///
/// The place is writable as long as the counter is open.
unsafe extern "C" fn set_wb_buffer(counter: *mut fid, buffer: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller has the counter open.
    let counter = unsafe { thing::<fid_cntr>(counter.cast()) };
    if len < 8 || !counter.card.config.back {
        return -FI_EINVAL;
    }
    counter
        .card
        .set_back(counter.id, buffer.expose_provenance());
    0
}

/// # Safety
///
/// The pointers live.
unsafe extern "C" fn get_mmio_addr(
    counter: *mut fid,
    at: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller has the counter open.
    let counter = unsafe { thing::<fid_cntr>(counter.cast()) };
    if !counter.card.config.pages {
        return -FI_ENOSYS;
    }
    let Some((page, bytes)) = counter.card.pages(counter.id) else {
        return -FI_ENOSYS;
    };
    // SAFETY: the caller's promise.
    unsafe {
        *at = std::ptr::with_exposed_provenance_mut(page);
        *len = bytes;
    }
    0
}

/// # Safety
///
/// The pointer lives.
unsafe extern "C" fn get_dwq_depth(domain: *mut fid, depth: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *depth = thing::<fid_domain>(domain.cast()).card.config.says };
    0
}

/// A table, at a place that does not move.
struct Table<T>(T);

// SAFETY: tables hold integers and function pointers.
unsafe impl<T> Sync for Table<T> {}

impl<T> Table<T> {
    fn at(&'static self) -> *mut T {
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

static FABRIC_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close_fabric),
    ..NOTHING
});
static DOMAIN_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_domain>),
    control: Some(control),
    ops_open: Some(domain_ops),
    ..NOTHING
});
static AV_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_av>),
    ..NOTHING
});
static CQ_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_cq>),
    ..NOTHING
});
static COUNTER_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_cntr>),
    ops_open: Some(counter_ops),
    ..NOTHING
});
static ENDPOINT_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_ep>),
    bind: Some(bind_endpoint),
    control: Some(enable),
    ..NOTHING
});
static MR_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_mr>),
    bind: Some(bind_region),
    control: Some(enable),
    ..NOTHING
});

static FABRIC: Table<fi_ops_fabric> = Table(fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: None,
    eq_open: None,
    wait_open: None,
    trywait: None,
    domain2: None,
});
static DOMAIN: Table<fi_ops_domain> = Table(fi_ops_domain {
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
static MR: Table<fi_ops_mr> = Table(fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: None,
    regv: None,
    regattr: Some(register),
});
static AV: Table<fi_ops_av> = Table(fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: None,
    insertsym: None,
    remove: None,
    lookup: None,
    straddr: None,
    av_set: None,
});
static CQ: Table<fi_ops_cq> = Table(fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read_queue),
    readfrom: None,
    readerr: Some(read_failure),
    sread: None,
    sreadfrom: None,
    signal: None,
    strerror: None,
});
static COUNTER: Table<fi_ops_cntr> = Table(fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read_counter),
    readerr: Some(read_failures),
    add: Some(add),
    set: Some(set),
    wait: None,
    adderr: None,
    seterr: None,
});
static CM: Table<fi_ops_cm> = Table(fi_ops_cm {
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
static RMA: Table<fi_ops_rma> = Table(fi_ops_rma {
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
static ATOMIC: Table<fi_ops_atomic> = Table(fi_ops_atomic {
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
static CXI_COUNTER: Table<fi_cxi_cntr_ops> = Table(fi_cxi_cntr_ops {
    set_wb_buffer: Some(set_wb_buffer),
    get_mmio_addr: Some(get_mmio_addr),
});
static CXI_DOMAIN: Table<fi_cxi_dom_ops> = Table(fi_cxi_dom_ops {
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
