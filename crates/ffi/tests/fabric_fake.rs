//! Tests with a provider that is made here. It has what no provider without hardware has: the extension of cxi, tables
//! that are too short, and refusals.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidegate_ffi::fabric::sys::*;
use tidegate_ffi::fabric::*;

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

/// # Safety
///
/// `from` is null, or was made by this function.
unsafe extern "C" fn dupinfo(from: *const fi_info) -> *mut fi_info {
    let mut whole = Box::new(Whole {
        info: fi_info::zeroed(),
        tx: fi_tx_attr::zeroed(),
        rx: fi_rx_attr::zeroed(),
        ep: fi_ep_attr::zeroed(),
        domain: fi_domain_attr::zeroed(),
        fabric: fi_fabric_attr::zeroed(),
    });
    if !from.is_null() {
        // SAFETY: the caller vouches for it.
        let from = unsafe { &*from.cast::<Whole>() };
        whole.domain = from.domain;
        whole.fabric = from.fabric;
    }
    let raw = Box::into_raw(whole);
    // SAFETY: `info` is from a box.
    unsafe {
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
    // SAFETY: the caller vouches for it.
    drop(unsafe { Box::from_raw(info.cast::<Whole>()) });
}

/// # Safety
///
/// As `fi_getinfo`.
unsafe extern "C" fn getinfo(
    version: u32,
    _: *const c_char,
    _: *const c_char,
    _: u64,
    hints: *const fi_info,
    found: *mut *mut fi_info,
) -> c_int {
    assert_eq!(version, API_VERSION);
    // SAFETY: the hints are complete, and the caller's pointer is live.
    unsafe {
        let whole = dupinfo(std::ptr::null()).cast::<Whole>();
        (*whole).fabric.prov_name = c"cxi".as_ptr().cast_mut();
        (*whole).domain.threading = (*(*hints).domain_attr).threading;
        if (*hints).caps == Caps::MULTI_RECV.0 {
            (*whole).domain.threading = FI_THREAD_DOMAIN;
        }
        *found = whole.cast();
    }
    0
}

unsafe extern "C" fn version_117() -> u32 {
    1 << 16 | 17
}

unsafe extern "C" fn version_114() -> u32 {
    1 << 16 | 14
}

unsafe extern "C" fn strerror(_: c_int) -> *const c_char {
    c"the fake refuses".as_ptr()
}

/// How many objects are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// The buffer that the provider was given for a counter.
static BUFFER: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// The counter's pages.
static PAGES: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// # Safety
///
/// `fid` is from [`object`].
unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    OPEN.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: the caller vouches for the pointer, which is to the beginning of a `Room`.
    drop(unsafe { Box::from_raw(fid.cast::<Room>()) });
    0
}

unsafe extern "C" fn refuse_close(_: *mut fid) -> c_int {
    -FI_EBUSY
}

/// Room for an object of any kind.
#[repr(C)]
struct Room {
    fid: fid,
    rest: [usize; 16],
}

/// Makes an object: a `fid`, and behind it the address of a table.
fn object<T>(ops: &'static fi_ops, table: *const c_void) -> *mut T {
    OPEN.fetch_add(1, Ordering::SeqCst);
    let mut room = Box::new(Room {
        fid: fid::zeroed(),
        rest: [0; 16],
    });
    room.fid.ops = std::ptr::from_ref(ops).cast_mut();
    room.rest[0] = table as usize;
    Box::into_raw(room).cast()
}

/// # Safety
///
/// As `fi_open_ops`.
unsafe extern "C" fn ops_open(
    _: *mut fid,
    name: *const c_char,
    _: u64,
    ops: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for it.
    let name = unsafe { CStr::from_ptr(name) };
    let table: *const c_void = if name == c"cxi_counter_ops" {
        (&raw const CXI_COUNTER).cast()
    } else if name == c"dom_ops_v5" {
        (&raw const CXI_DOMAIN).cast()
    } else {
        return -FI_EINVAL;
    };
    // SAFETY: the caller vouches for it.
    unsafe { *ops = table.cast_mut() };
    0
}

static CXI_COUNTER: fi_cxi_cntr_ops = fi_cxi_cntr_ops {
    set_wb_buffer: Some(set_wb_buffer),
    get_mmio_addr: Some(get_mmio_addr),
};

static CXI_DOMAIN: fi_cxi_dom_ops = fi_cxi_dom_ops {
    cntr_read: None,
    topology: None,
    enable_hybrid_mr_desc: None,
    ep_get_unexp_msgs: None,
    get_dwq_depth: Some(get_dwq_depth),
};

unsafe extern "C" fn set_wb_buffer(_: *mut fid, buffer: *mut c_void, len: usize) -> c_int {
    if len < 8 {
        return -FI_EINVAL;
    }
    BUFFER.store(buffer as usize, Ordering::SeqCst);
    LENGTH.store(len, Ordering::SeqCst);
    0
}

/// # Safety The two pointers are live.
unsafe extern "C" fn get_mmio_addr(_: *mut fid, at: *mut *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller vouches for them.
    unsafe {
        *at = PAGES.as_ptr() as *mut c_void;
        *len = size_of_val(&PAGES);
    }
    0
}

/// # Safety The pointer is live.
unsafe extern "C" fn get_dwq_depth(_: *mut fid, depth: *mut usize) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { *depth = 480 };
    0
}

const FULL: fi_ops = fi_ops {
    close: Some(close),
    ops_open: Some(ops_open),
    ..fi_ops::EMPTY
};
static CXI: fi_ops = FULL;
/// A table that ends before `ops_open`.
static SHORT: fi_ops = fi_ops {
    size: std::mem::offset_of!(fi_ops, ops_open),
    ..FULL
};
static STUBBORN: fi_ops = fi_ops {
    close: Some(refuse_close),
    control: Some(enable),
    ..FULL
};

unsafe extern "C" fn enable(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    0
}

/// A table of operations in a static.
struct Table<T>(T);
// SAFETY: the tables hold integers and function pointers.
unsafe impl<T> Sync for Table<T> {}

static FABRIC: Table<fi_ops_fabric> = Table(fi_ops_fabric {
    domain: Some(open_domain),
    ..fi_ops_fabric::EMPTY
});

static DOMAIN: Table<fi_ops_domain> = Table(fi_ops_domain {
    endpoint: Some(open_endpoint),
    cntr_open: Some(open_counter),
    ..fi_ops_domain::EMPTY
});

/// A table that ends before `add`.
static COUNTER: Table<fi_ops_cntr> = Table(fi_ops_cntr {
    size: std::mem::offset_of!(fi_ops_cntr, add),
    read: Some(read),
    readerr: Some(read),
    add: Some(never),
    ..fi_ops_cntr::EMPTY
});

unsafe extern "C" fn never(_: *mut fid_cntr, _: u64) -> c_int {
    std::process::abort()
}

unsafe extern "C" fn read(_: *mut fid_cntr) -> u64 {
    0
}

/// # Safety
///
/// As `fi_fabric`.
unsafe extern "C" fn open_fabric(
    _: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    unsafe { *fabric = object(&CXI, (&raw const FABRIC).cast()) };
    0
}

/// # Safety
///
/// As `fi_domain`.
unsafe extern "C" fn open_domain(
    _: *mut fid_fabric,
    _: *mut fi_info,
    domain: *mut *mut fid_domain,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    unsafe { *domain = object(&CXI, (&raw const DOMAIN).cast()) };
    0
}

/// # Safety
///
/// As `fi_endpoint`.
unsafe extern "C" fn open_endpoint(
    _: *mut fid_domain,
    _: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    unsafe { *endpoint = object(&STUBBORN, null_mut()) };
    0
}

/// # Safety
///
/// As `fi_cntr_open`.
unsafe extern "C" fn open_counter(
    _: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    counter: *mut *mut fid_cntr,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for the pointers. The kind of wait object chooses the kind of counter that a test
    // wants.
    unsafe {
        *counter = match (*attr).wait_obj {
            FI_WAIT_NONE => object(&CXI, (&raw const COUNTER).cast()),
            FI_WAIT_FD => object(&SHORT, (&raw const COUNTER).cast()),
            FI_WAIT_YIELD => object(&STUBBORN, (&raw const COUNTER).cast()),
            FI_WAIT_UNSPEC => null_mut(),
            _ => return -FI_EINVAL,
        };
    }
    0
}

const FUNCTIONS: Functions = Functions {
    version: version_117,
    strerror,
    getinfo,
    freeinfo,
    dupinfo,
    fabric: open_fabric,
};

fn library() -> Library {
    // SAFETY: the functions do what libfabric documents, as far as these tests use them.
    unsafe { Library::from_functions(FUNCTIONS, "the fake".into()) }.expect("a library")
}

fn domain() -> Arc<Domain> {
    let infos = library().query(&Hints::new(), Location::ANY).expect("one");
    Domain::open(&Fabric::open(&infos[0]).expect("fabric"), &infos[0]).expect("domain")
}

/// Keeps the tests apart: they share the statics above, and count open objects.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

#[test]
fn a_cxi_counter_gives_its_pages_and_takes_a_buffer() {
    let _alone = alone();
    {
        let domain = domain();
        assert_eq!(domain.info().provider(), "cxi");
        assert_eq!(domain.cxi_deferred_depth(), Ok(480));
        let counter = Counter::open(&domain, WaitObject::NONE).expect("a counter");
        let cxi = CxiCounter::new(&counter).expect("the extension");
        let mmio = cxi.mmio().expect("pages");
        assert_eq!(mmio.address.as_ptr() as usize, PAGES.as_ptr() as usize);
        assert_eq!(mmio.len, 256);
        // A device would add in this way.
        // SAFETY: the pages are these words.
        unsafe { mmio.at(0).expect("a place").write_volatile(1) };
        assert_eq!(PAGES[0].load(Ordering::SeqCst), 1);

        let buffer = Arc::new(AtomicU64::new(0));
        let at = Arc::as_ptr(&buffer) as *mut c_void;
        let keep: Keep = Arc::clone(&buffer) as Keep;
        // SAFETY: the buffer lives as long as it is shared.
        unsafe { cxi.set_write_back(at, 8, keep) }.expect("set");
        assert_eq!(BUFFER.load(Ordering::SeqCst), at as usize);
        assert_eq!(LENGTH.load(Ordering::SeqCst), 8);
        // SAFETY: the call is refused.
        let refused = unsafe { cxi.set_write_back(at, 4, Arc::new(())) };
        let refused = refused.expect_err("too short");
        assert_eq!(refused.code, FI_EINVAL, "{refused}");
        assert_eq!(
            (refused.call, &*refused.text),
            ("set_wb_buffer", "the fake refuses")
        );
        drop(cxi);
        assert_eq!(Arc::strong_count(&buffer), 2, "the counter is still open");
        drop(counter);
        assert_eq!(Arc::strong_count(&buffer), 1);
    }
    assert_eq!(OPEN.load(Ordering::SeqCst), 0, "all is closed");
}

#[test]
fn operations_beyond_the_end_of_a_table_are_not_called() {
    let _alone = alone();
    let domain = domain();
    let error = AddressVector::open(&domain, 1).map(|_| ());
    assert!(error.expect_err("absent").is_missing());

    let short = Counter::open(&domain, WaitObject(FI_WAIT_FD)).expect("a counter");
    assert!(CxiCounter::new(&short).expect_err("short").is_missing());
    let error = short.set(1).expect_err("absent");
    assert!(error.is_missing() && error.is_not_supported(), "{error}");
    assert_eq!(error.call, "fi_cntr_set");
    assert!(short.add(1).expect_err("short").is_missing());
    // There is no `control`, and so there are no deferred works.
    match domain.probe_deferred(std::time::Duration::from_secs(1)) {
        Deferred::Refused(error) => assert!(error.is_missing(), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_that_is_opened_as_null_is_an_error() {
    let _alone = alone();
    let domain = domain();
    let error = Counter::open(&domain, WaitObject::UNSPEC).expect_err("nothing");
    assert_eq!(error.code, FabricError::UNEXPECTED);
    assert_eq!(error.call, "fi_cntr_open");
    let error = Counter::open(&domain, WaitObject(99)).expect_err("refused");
    assert_eq!(error.name, "FI_EINVAL");
}

#[test]
fn an_object_that_cannot_be_closed_is_leaked_with_all_that_it_needs() {
    let _alone = alone();
    let open = OPEN.load(Ordering::SeqCst);
    let before = leaked_objects();
    let domain = domain();
    let counter = Counter::open(&domain, WaitObject(FI_WAIT_YIELD)).expect("a counter");
    let buffer = Arc::new(AtomicU64::new(0));
    let at = Arc::as_ptr(&buffer) as *mut c_void;
    let cxi = CxiCounter::new(&counter).expect("the extension");
    // SAFETY: the buffer lives as long as it is shared.
    unsafe { cxi.set_write_back(at, 8, Arc::clone(&buffer) as Keep) }.expect("set");
    drop((cxi, counter));
    assert_eq!(leaked_objects(), before + 1);
    assert_eq!(Arc::strong_count(&buffer), 2, "it may still be written");
    let builder = EndpointBuilder::new(&domain).expect("an endpoint");
    let endpoint = builder.enable().expect("enabled");
    endpoint.keep(Arc::clone(&buffer) as Keep);
    drop(endpoint);
    assert_eq!(leaked_objects(), before + 2);
    assert_eq!(Arc::strong_count(&buffer), 3, "it may still be accessed");
    drop(domain);
    assert_eq!(OPEN.load(Ordering::SeqCst), open + 4, "with its parents");
    // The other tests count from here on.
    OPEN.store(open, Ordering::SeqCst);
}

#[test]
fn a_domain_that_is_not_for_all_threads_is_refused() {
    let _alone = alone();
    let hints = Hints::new().caps(Caps::MULTI_RECV);
    let infos = library().query(&hints, Location::ANY).expect("one");
    let fabric = Fabric::open(&infos[0]).expect("fabric");
    let error = Domain::open(&fabric, &infos[0]).map(|_| ());
    let error = error.expect_err("not for all threads");
    assert!(error.is_refused(), "{error}");
}

#[test]
fn a_library_that_is_too_old_or_lays_things_out_differently_is_refused() {
    let old = Functions {
        version: version_114,
        ..FUNCTIONS
    };
    // SAFETY: as in `library`.
    let error = unsafe { Library::from_functions(old, "old".into()) }.expect_err("too old");
    assert_eq!(
        error.to_string(),
        "old is libfabric 1.14, but 1.17 is needed"
    );

    unsafe extern "C" fn nothing(_: *const fi_info) -> *mut fi_info {
        null_mut()
    }
    /// # Safety
    ///
    /// As [`dupinfo`].
    unsafe extern "C" fn shifted(from: *const fi_info) -> *mut fi_info {
        // SAFETY: the caller vouches for the pointer; the description that comes back is whole.
        unsafe {
            let info = dupinfo(from);
            (*info).caps = 1;
            info
        }
    }
    /// # Safety
    ///
    /// As [`dupinfo`].
    unsafe extern "C" fn without(from: *const fi_info) -> *mut fi_info {
        // SAFETY: as above.
        unsafe {
            let info = dupinfo(from);
            (*info).ep_attr = null_mut();
            info
        }
    }
    for dupinfo in [nothing, shifted, without] {
        let strange = Functions {
            dupinfo,
            ..FUNCTIONS
        };
        // SAFETY: as in `library`.
        let error = unsafe { Library::from_functions(strange, "strange".into()) };
        let error = error.expect_err("a different layout");
        assert!(matches!(error, LoadError::Layout { .. }), "{error}");
    }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let names = ["/nowhere/libfabric.so.1", "libtidegate-no-such-library.so"];
    // SAFETY: there is nothing with these names.
    let error = unsafe { Library::load_from(&names) }.expect_err("nothing");
    let LoadError::Library { tried } = &error else {
        panic!("{error:?}");
    };
    assert!(tried.iter().all(|(_, said)| !said.is_empty()));
    for name in names {
        assert!(error.to_string().contains(name), "{error}");
    }
    // SAFETY: as above.
    let error = unsafe { Library::load_from::<&str>(&[]) }.expect_err("nothing");
    assert!(error.to_string().contains("no names were given"), "{error}");
    // SAFETY: as above.
    let error = unsafe { Library::load_from(&["lib\0fabric.so"]) }.expect_err("nothing");
    assert!(matches!(error, LoadError::Library { .. }), "{error:?}");
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_library_that_is_something_else_is_refused_with_the_first_symbol_it_lacks() {
    // SAFETY: this process has the C library already.
    let error = unsafe { Library::load_from(&["libc.so.6"]) }.expect_err("not libfabric");
    assert_eq!(
        error,
        LoadError::Symbol {
            library: "libc.so.6".into(),
            symbol: "fi_version",
            version: "FABRIC_1.0",
        }
    );
}

/// An offset that ends with the pages is inside, and one that ends behind them is not.
#[test]
fn an_address_lies_within_the_pages() {
    let mmio = Mmio {
        address: NonNull::dangling(),
        len: 8,
    };
    assert!(mmio.at(0).is_some() && mmio.at(1).is_none());
}
