//! Tests of the table with a real driver and device. If no driver can be loaded, they are skipped, and say so. If
//! `TIDEGATE_REQUIRE_CUDA` is set, they then fail.

use std::ffi::{CStr, c_void};
use std::os::fd::AsFd;
use std::ptr::NonNull;

use tidegate_ffi::cuda::*;
use tidegate_hal::device::ErrorKind;

/// `increment(unsigned *p)` adds one to the word. Only a grid of one thread has no race. If it was launched early, it
/// waits for the kernel in front of it.
const PTX: &CStr = c".version 7.8
.target sm_90
.address_size 64
.visible .entry increment(.param .u64 word)
{
    .reg .u64 %p;
    .reg .u32 %v;
    griddepcontrol.wait;
    ld.param.u64 %p, [word];
    cvta.to.global.u64 %p, %p;
    ld.global.u32 %v, [%p];
    add.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ret;
}
";

/// The driver, with a current context; `None` if there is no driver.
fn driver() -> Option<(&'static Driver, Device)> {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => {
            assert!(
                std::env::var_os("TIDEGATE_REQUIRE_CUDA").is_none_or(|text| text.is_empty()),
                "{error}"
            );
            eprintln!("skipped: {error}");
            return None;
        }
    };
    driver.init().expect("init");
    let device = driver.device(0).expect("a device");
    let context = driver.primary_ctx_retain(device).expect("its context");
    // SAFETY: the context is alive, and is never released here.
    unsafe { driver.ctx_set_current(context) }.expect("current");
    Some((driver, device))
}

#[test]
fn devices_and_contexts_have_their_properties() {
    let Some((d, device)) = driver() else { return };
    assert!(d.device_count().expect("count") >= 1);
    assert!(!d.device_name(device).expect("name").is_empty());
    assert_ne!(d.device_uuid(device).expect("uuid"), [0; 16]);
    let warp = d.device_attribute(device, DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    assert_eq!(warp, Ok(32));
    assert_eq!(d.device(9999).expect_err("no such device").code, 101);
    let (least, greatest) = d.ctx_stream_priority_range().expect("range");
    assert!(greatest <= least);
    let (name, text) = d.describe(2);
    assert_eq!(
        (name.as_str(), text.as_str()),
        ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    );
    assert_eq!(d.describe(98_765).0, "unknown code 98765");
}

#[test]
fn memory_words_and_events_work_on_a_stream() {
    let Some((d, device)) = driver() else { return };
    let stream = d.stream_create(0).expect("stream");
    let pinned = d
        .mem_host_alloc(128, HostFlags::PORTABLE | HostFlags::DEVICE_MAP)
        .expect("pinned");
    let host = pinned.as_ptr().cast::<u64>();
    // SAFETY: all handles and addresses are made here, and are alive until the end. The host waits before it reads.
    unsafe {
        host.write_bytes(0, 16);
        host.write(41);
        let pool = d.mem_pool_create(&PoolProps::pinned(device)).expect("pool");
        d.mem_pool_set_release_threshold(pool, 1 << 20)
            .expect("attribute");
        let there = d
            .mem_alloc_from_pool_async(64, pool, stream)
            .expect("memory");
        let words = d.mem_host_device_ptr(pinned).expect("address");
        let word = |at: u64| DevicePtr(words.0 + 8 * at);
        let (start, end) = (
            d.event_create(EventFlags::DEFAULT).expect("event"),
            d.event_create(EventFlags::DEFAULT).expect("event"),
        );
        d.event_record(start, stream).expect("record");
        d.memcpy_htod_async(there, host.cast(), 8, stream)
            .expect("in");
        d.memcpy_dtod_async(DevicePtr(there.0 + 8), there, 8, stream)
            .expect("across");
        d.memset_d8_async(DevicePtr(there.0 + 16), 0xAB, 48, stream)
            .expect("fill");
        let mut batch = [
            MemOp::write64(word(8), 1 << 40),
            MemOp::wait64(word(8), 1 << 39),
            MemOp::write32(word(9), 8),
        ];
        d.stream_batch_mem_op(stream, &mut batch).expect("batch");
        d.memcpy_dtoh_async(host.cast(), there, 64, stream)
            .expect("out");
        d.event_record(end, stream).expect("record");
        d.stream_wait_event(stream, end).expect("ordered");
        d.stream_synchronize(stream).expect("happened");
        assert!(
            d.event_elapsed_ms(start, end)
                .expect("time")
                .is_some_and(|ms| ms > 0.0)
        );
        let read: [u64; 10] = std::array::from_fn(|at| host.add(at).read());
        assert_eq!(read[..3], [41, 41, 0xABAB_ABAB_ABAB_ABAB]);
        assert_eq!((read[8], read[9] as u32), (1 << 40, 8));
        assert_eq!(d.event_query(end), Ok(true));
        // While the word is not written, the wait for it is not done, and that is no error.
        let mut batch = [MemOp::wait64(word(10), 1)];
        d.stream_batch_mem_op(stream, &mut batch).expect("wait");
        d.event_record(end, stream).expect("record");
        assert_eq!(d.stream_query(stream), Ok(false));
        assert_eq!(d.event_query(end), Ok(false));
        assert_eq!(d.event_elapsed_ms(start, end), Ok(None));
        host.add(10).write_volatile(1);
        d.stream_synchronize(stream).expect("released");
        assert_eq!(d.stream_query(stream), Ok(true));
        let kind = d.pointer_attribute(there, PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
        assert_eq!(kind, Ok(2));
        assert_eq!(
            d.pointer_attribute(
                DevicePtr(8),
                PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            )
            .expect_err("unknown")
            .kind(),
            ErrorKind::Invalid
        );
        d.mem_free_async(there, stream).expect("freed");
        d.stream_synchronize(stream).expect("done");
        d.event_destroy(start).expect("destroyed");
        d.event_destroy(end).expect("destroyed");
        d.stream_destroy(stream).expect("destroyed");
    }
}

/// The test maps a page itself, as tidegate maps the page of a register.
#[test]
fn memory_that_the_process_has_mapped_is_registered_and_unregistered() {
    let Some((d, _)) = driver() else { return };
    let stream = d.stream_create(0).expect("stream");
    let layout = std::alloc::Layout::from_size_align(4096, 4096).expect("a page");
    // SAFETY: the page has this size, and belongs to this test only. It is unregistered when the stream is done, and
    // then freed.
    unsafe {
        let page = NonNull::new(std::alloc::alloc_zeroed(layout)).expect("a page");
        let (at, word) = (page.cast(), page.cast::<u64>().as_ptr().add(3));
        d.mem_host_register(at, 4096, RegisterFlags::DEVICE_MAP)
            .expect("registered");
        let again = d.mem_host_register(at, 4096, RegisterFlags::DEVICE_MAP);
        assert_eq!(
            again.expect_err("it is").kind(),
            ErrorKind::AlreadyRegistered
        );
        // An address in the middle of the page has a device address, too.
        let there = NonNull::new(word).expect("it lies in the page");
        let there = d.mem_host_device_ptr(there.cast()).expect("address");
        let mut batch = [MemOp::write64(there, 77)];
        d.stream_batch_mem_op(stream, &mut batch).expect("write");
        d.stream_synchronize(stream).expect("done");
        assert_eq!(word.read_volatile(), 77);
        d.mem_host_unregister(at).expect("unregistered");
        assert!(d.mem_host_unregister(at).is_err());
        std::alloc::dealloc(page.as_ptr(), layout);
        d.stream_destroy(stream).expect("destroyed");
    }
}

#[test]
fn mapped_memory_is_the_same_under_two_handles() {
    let Some((d, device)) = driver() else { return };
    let prop = AllocationProp::pinned(device).shareable();
    let bytes = d.mem_granularity(&prop).expect("granularity");
    let stream = d.stream_create(0).expect("stream");
    // SAFETY: all handles and addresses are made here, and are alive until the end. The host waits before it reads.
    unsafe {
        let memory = d.mem_create(bytes, &prop).expect("memory");
        let fd = d.mem_export_fd(memory).expect("descriptor");
        let again = d.mem_import_fd(fd.as_fd()).expect("imported");
        let null = std::fs::File::open("/dev/null").expect("opened");
        d.mem_import_fd(null.as_fd())
            .expect_err("that is no memory");
        let map = |handle| {
            let at = d
                .mem_address_reserve(bytes, 0, DevicePtr::NULL)
                .expect("addresses");
            d.mem_map(at, bytes, 0, handle).expect("mapped");
            d.mem_set_access(at, bytes, &[AccessDesc::read_write(device)])
                .expect("access");
            at
        };
        let (one, other) = (map(memory), map(again));
        d.memset_d8_async(one, 0x12, bytes, stream).expect("fill");
        let mut read = [0u32; 2];
        d.memcpy_dtoh_async(
            read.as_mut_ptr().cast(),
            DevicePtr(other.0 + bytes as u64 - 8),
            8,
            stream,
        )
        .expect("out");
        d.stream_synchronize(stream).expect("done");
        assert_eq!(read, [0x1212_1212; 2]);
        for at in [one, other] {
            d.mem_unmap(at, bytes).expect("unmapped");
            d.mem_address_free(at, bytes).expect("given back");
        }
        d.mem_release(memory).expect("released");
        d.mem_release(again).expect("released");
        d.stream_destroy(stream).expect("destroyed");
    }
}

#[test]
fn kernels_run_alone_with_attributes_and_from_graphs() {
    let Some((d, device)) = driver() else { return };
    let major = DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    if d.device_attribute(device, major).expect("capability") < 9 {
        eprintln!("skipped: programmatic launches need compute capability 9.0");
        return;
    }
    let bad = c".version 7.8\n.target sm_80\n.address_size 64\nthis is no PTX\n";
    let error = d.module_load_ptx(bad).expect_err("refused");
    assert!(error.code == 218 && error.text.contains("line"), "{error}");
    unsafe extern "C" fn add_100(word: *mut c_void) {
        // SAFETY: the word is an atomic, and outlives the stream's work.
        let word = unsafe { &*word.cast::<std::sync::atomic::AtomicU32>() };
        word.fetch_add(100, std::sync::atomic::Ordering::Relaxed);
    }
    let called = std::sync::atomic::AtomicU32::new(0);
    let stream = d.stream_create(0).expect("stream");
    // SAFETY: all handles and addresses are made here, and are alive until the end. The kernel's one parameter is the
    // address of a word that only this stream uses. The host waits before it reads.
    unsafe {
        let module = d.module_load_ptx(PTX).expect("module");
        let function = d.module_function(module, c"increment").expect("function");
        let other = d.module_function(module, c"other");
        assert_eq!(other.expect_err("none").code, 500);
        assert_eq!(d.func_param_info(function, 0), Ok((0, 8)));
        assert_eq!(
            d.func_param_info(function, 1).expect_err("one only").kind(),
            ErrorKind::Invalid
        );
        d.func_load(function).expect("loaded");
        d.func_prefer_shared_memory(function, 100)
            .expect("preferred");
        let error = d.func_prefer_shared_memory(function, 101);
        assert_eq!(error.expect_err("too much").kind(), ErrorKind::Invalid);
        assert_eq!(d.func_shared_memory(function), Ok(0));
        d.func_allow_shared_memory(function, 50_000)
            .expect("allowed");
        let error = d.func_allow_shared_memory(function, 1 << 30);
        assert_eq!(error.expect_err("too much").kind(), ErrorKind::Invalid);
        assert!(
            d.max_active_blocks_per_multiprocessor(function, 32, 0)
                .expect("blocks")
                > 1
        );

        let pool = d.mem_pool_create(&PoolProps::pinned(device)).expect("pool");
        let word = d
            .mem_alloc_from_pool_async(4, pool, stream)
            .expect("memory");
        d.memset_d8_async(word, 0, 4, stream).expect("zero");
        let mut address = word.0;
        let mut arguments = [(&raw mut address).cast::<c_void>()];
        let plain = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
        let full = plain
            .shared_bytes(1024)
            .programmatic_stream_serialization(true);
        d.launch_kernel_ex(function, &plain, stream, &mut arguments)
            .expect("launch");
        d.launch_kernel_ex(function, &plain, stream, &mut arguments)
            .expect("launch");

        // A programmatic edge leads to the second of these.
        d.stream_begin_capture(stream).expect("capture");
        d.launch_kernel_ex(function, &plain, stream, &mut arguments)
            .expect("recorded");
        d.launch_kernel_ex(function, &full, stream, &mut arguments)
            .expect("recorded");
        let info = d.stream_capture_info(stream).expect("info");
        assert_eq!(info.status, CaptureStatus::Active);
        assert!(!info.graph.is_null());
        let graph = d.stream_end_capture(stream).expect("graph");
        assert_eq!(d.graph_node_count(graph), Ok(2));
        let whole = d.graph_create().expect("graph");
        let first = d.graph_add_child(whole, &[], graph).expect("node");
        d.graph_add_child(whole, &[first], graph).expect("node");
        assert_eq!(d.graph_node_count(whole), Ok(2));
        let exec = d
            .graph_instantiate(whole, GraphFlags::NONE)
            .expect("executable");
        for graph in [graph, whole] {
            d.graph_destroy(graph).expect("destroyed");
        }
        d.graph_upload(exec, stream).expect("upload");
        d.graph_launch(exec, stream).expect("launch");
        d.graph_launch(exec, stream).expect("launch");
        d.launch_host_func(stream, add_100, (&raw const called).cast_mut().cast())
            .expect("enqueued");
        let mut read = 0u32;
        d.memcpy_dtoh_async((&raw mut read).cast(), word, 4, stream)
            .expect("out");
        d.stream_synchronize(stream).expect("done");
        assert_eq!(read, 2 + 2 * 4);
        assert_eq!(called.load(std::sync::atomic::Ordering::Relaxed), 100);

        // A call that a capture forbids is an error that says so, and makes the capture fail.
        d.stream_begin_capture(stream).expect("capture");
        assert_eq!(
            d.stream_synchronize(stream).expect_err("forbidden").kind(),
            ErrorKind::Capture
        );
        let status = |info: CaptureInfo| info.status;
        assert_eq!(
            d.stream_capture_info(stream).map(status),
            Ok(CaptureStatus::Invalidated)
        );
        assert_eq!(
            d.stream_end_capture(stream).expect_err("spoilt").kind(),
            ErrorKind::Capture
        );
        assert_eq!(
            d.stream_capture_info(stream).map(status),
            Ok(CaptureStatus::None)
        );

        d.graph_exec_destroy(exec).expect("destroyed");
        d.mem_free_async(word, stream).expect("freed");
        d.stream_destroy(stream).expect("destroyed");
    }
}
