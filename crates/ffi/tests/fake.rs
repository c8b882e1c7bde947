//! Tests of the table with fake drivers, which the C compiler makes here. Each of their functions returns a code of its
//! own that no driver knows. So the tests see that every method calls the function that its documentation names, and
//! that unknown codes are passed on unchanged.
//!
//! Without a C compiler the tests are skipped, and say so; if `CI` is set, they fail.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::ptr::{NonNull, null_mut};

use tidegate_ffi::cuda::{self, *};
use tidegate_hal::device::ErrorKind;

#[path = "../../../tests/common/skipped.rs"]
mod skipped;

/// The code that a function of the fake returns is this plus the function's place in the table.
const BASE: i32 = 12_345;

/// Functions that tell about the driver itself. A test may replace them.
const PRELUDE: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
"#;
const VERSION: (&str, &str) = (
    "cuDriverGetVersion",
    "int cuDriverGetVersion(int *v) { *v = 13000; return 0; }",
);
const NAMES: (&str, &str) = (
    "cuGetErrorName",
    r#"int cuGetErrorName(int code, const char **name) {
        if (code != 2) return 1;
        *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    }"#,
);

fn symbols() -> impl Iterator<Item = &'static str> {
    REQUIRED.iter().chain(OPTIONAL).copied()
}

fn code_of(symbol: &str) -> i32 {
    let at = symbols().position(|s| s == symbol).expect("in the table");
    BASE + at as i32
}

/// A fake with these `bodies`, without the functions in `absent`. All other functions refuse the call.
fn fake(bodies: &[(&str, &str)], absent: &[&str]) -> Option<Result<Driver, LoadError>> {
    let mut source = PRELUDE.to_owned();
    for symbol in symbols().filter(|symbol| !absent.contains(symbol)) {
        match bodies.iter().find(|(name, _)| *name == symbol) {
            Some((_, body)) => source.push_str(body),
            None => source.push_str(&format!("int {symbol}() {{ return {}; }}", code_of(symbol))),
        }
        source.push('\n');
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (
        folder.path().join("fake.c"),
        folder.path().join("libfake.so"),
    );
    std::fs::write(&input, source).expect("written");
    let mut found = false;
    for compiler in ["cc", "gcc"] {
        let Ok(made) = Command::new(compiler)
            .args(["-shared", "-fPIC", "-w", "-o"])
            .args([&output, &input])
            .output()
        else {
            continue;
        };
        assert!(
            made.status.success(),
            "{compiler}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        found = true;
        break;
    }
    if !found {
        let why = "there is no C compiler (`cc` or `gcc`) to make a fake libcuda with";
        skipped::skipped("a driver of functions that are given", why);
        return None;
    }
    let path = output.to_str().expect("text");
    // SAFETY: the library has no initialisers. Each of its functions ignores its arguments, or takes those of the
    // driver's function.
    Some(unsafe { Driver::load_from(&[path]) })
}

/// A fake driver that loads.
fn driver(bodies: &[(&str, &str)], absent: &[&str]) -> Option<Driver> {
    let mut all = vec![VERSION, NAMES];
    all.extend_from_slice(bodies);
    fake(&all, absent).map(|loaded| loaded.expect("it has all that is required"))
}

const PTX: &CStr = c".version 8.0\n.target sm_90\n.address_size 64\n";

#[test]
fn every_method_calls_its_function_and_returns_an_unknown_code() {
    let Some(d) = driver(&[], &[]) else { return };
    let mut called = BTreeSet::new();
    let device = Device(0);
    let (at, host) = (DevicePtr(0x1000), NonNull::<c_void>::dangling());
    let file = std::fs::File::open("/dev/null").expect("opened");
    let prop = AllocationProp::pinned(device).shareable();
    let launch = LaunchConfig::new([1, 1, 1], [32, 1, 1]);
    unsafe extern "C" fn nothing(_: *mut c_void) {}

    macro_rules! refused {
        ($($method:ident($($arg:expr),*) => $symbol:literal;)*) => {$(
            // Some of the methods are safe, and need no `unsafe`.
            #[allow(unused_unsafe)]
            // SAFETY: the functions of the fake do nothing with their arguments.
            let error = unsafe { d.$method($($arg),*) }.expect_err($symbol);
            assert_eq!(error.call, $symbol);
            assert_eq!(error.code, code_of($symbol), "{error}");
            assert_eq!(error.to_string(), format!("{}: unknown code {}", $symbol, error.code));
            called.insert($symbol);
        )*};
    }
    let (stream, event, graph) = (Stream::NULL, Event::NULL, Graph::NULL);
    let (exec, module, function) = (GraphExec::NULL, cuda::Module::NULL, Function::NULL);
    let (pool, memory, context) = (Pool::NULL, MemHandle(1), Context::NULL);
    let edge = Edge {
        from: GraphNode::NULL,
        to: GraphNode::NULL,
        how: Dependency::OVER,
    };
    refused! {
        init() => "cuInit";
        device_count() => "cuDeviceGetCount";
        device(0) => "cuDeviceGet";
        device_name(device) => "cuDeviceGetName";
        device_uuid(device) => "cuDeviceGetUuid_v2";
        device_attribute(device, DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE) => "cuDeviceGetAttribute";
        device_p2p_attribute(P2pAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, device) => "cuDeviceGetP2PAttribute";
        primary_ctx_retain(device) => "cuDevicePrimaryCtxRetain";
        primary_ctx_set_flags(device, ContextFlags::SCHED_AUTO) => "cuDevicePrimaryCtxSetFlags_v2";
        ctx_set_current(context) => "cuCtxSetCurrent";
        ctx_stream_priority_range() => "cuCtxGetStreamPriorityRange";
        ctx_multiprocessors() => "cuCtxGetExecAffinity";
        stream_create(0) => "cuStreamCreateWithPriority";
        stream_destroy(stream) => "cuStreamDestroy_v2";
        stream_synchronize(stream) => "cuStreamSynchronize";
        stream_query(stream) => "cuStreamQuery";
        stream_wait_event(stream, event) => "cuStreamWaitEvent";
        stream_begin_capture(stream) => "cuStreamBeginCapture_v2";
        stream_end_capture(stream) => "cuStreamEndCapture";
        stream_capture_info(stream) => "cuStreamGetCaptureInfo_v3";
        event_create(EventFlags::DEFAULT) => "cuEventCreate";
        event_destroy(event) => "cuEventDestroy_v2";
        event_record(event, stream) => "cuEventRecord";
        event_record_external(event, stream) => "cuEventRecordWithFlags";
        event_query(event) => "cuEventQuery";
        event_elapsed_ms(event, event) => "cuEventElapsedTime";
        graph_create() => "cuGraphCreate";
        graph_destroy(graph) => "cuGraphDestroy";
        graph_node_count(graph) => "cuGraphGetNodes";
        graph_add_child(graph, &[], graph) => "cuGraphAddChildGraphNode";
        graph_nodes(graph) => "cuGraphGetNodes";
        graph_edges(graph) => "cuGraphGetEdges_v2";
        graph_kernel_node(GraphNode::NULL) => "cuGraphNodeGetType";
        graph_add_edges(graph, &[edge]) => "cuGraphAddDependencies_v2";
        graph_instantiate(graph, GraphFlags::NONE) => "cuGraphInstantiateWithFlags";
        graph_upload(exec, stream) => "cuGraphUpload";
        graph_launch(exec, stream) => "cuGraphLaunch";
        graph_exec_destroy(exec) => "cuGraphExecDestroy";
        memcpy_htod_async(at, host.as_ptr(), 8, stream) => "cuMemcpyHtoDAsync_v2";
        memcpy_dtoh_async(host.as_ptr(), at, 8, stream) => "cuMemcpyDtoHAsync_v2";
        memcpy_dtod_async(at, at, 8, stream) => "cuMemcpyDtoDAsync_v2";
        memset_d8_async(at, 0, 8, stream) => "cuMemsetD8Async";
        mem_host_alloc(8, HostFlags::PORTABLE | HostFlags::DEVICE_MAP) => "cuMemHostAlloc";
        mem_host_register(host, 8, RegisterFlags::IO_MEMORY | RegisterFlags::DEVICE_MAP) => "cuMemHostRegister_v2";
        mem_host_unregister(host) => "cuMemHostUnregister";
        mem_host_device_ptr(host) => "cuMemHostGetDevicePointer_v2";
        pointer_attribute(at, PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) => "cuPointerGetAttribute";
        mem_alloc_from_pool_async(8, pool, stream) => "cuMemAllocFromPoolAsync";
        mem_free_async(at, stream) => "cuMemFreeAsync";
        mem_pool_create(&PoolProps::pinned(device)) => "cuMemPoolCreate";
        mem_pool_set_release_threshold(pool, 1) => "cuMemPoolSetAttribute";
        mem_granularity(&prop) => "cuMemGetAllocationGranularity";
        mem_create(8, &prop) => "cuMemCreate";
        mem_release(memory) => "cuMemRelease";
        mem_address_reserve(8, 0, DevicePtr::NULL) => "cuMemAddressReserve";
        mem_address_free(at, 8) => "cuMemAddressFree";
        mem_map(at, 8, 0, memory) => "cuMemMap";
        mem_unmap(at, 8) => "cuMemUnmap";
        mem_set_access(at, 8, &[AccessDesc::read_write(device)]) => "cuMemSetAccess";
        mem_export_fd(memory) => "cuMemExportToShareableHandle";
        mem_import_fd(file.as_fd()) => "cuMemImportFromShareableHandle";
        module_load_ptx(PTX) => "cuModuleLoadDataEx";
        module_load_image(&[0; 64]) => "cuModuleLoadDataEx";
        module_function(module, c"f") => "cuModuleGetFunction";
        func_load(function) => "cuFuncLoad";
        func_shared_memory(function) => "cuFuncGetAttribute";
        func_prefer_shared_memory(function, 50) => "cuFuncSetAttribute";
        func_allow_shared_memory(function, 1 << 16) => "cuFuncSetAttribute";
        func_param_info(function, 0) => "cuFuncGetParamInfo";
        max_active_blocks_per_multiprocessor(function, 32, 0) => "cuOccupancyMaxActiveBlocksPerMultiprocessor";
        launch_kernel_ex(function, &launch, stream, &mut []) => "cuLaunchKernelEx";
        launch_host_func(stream, nothing, null_mut()) => "cuLaunchHostFunc";
        stream_batch_mem_op(stream, &mut [MemOp::write64(at, 1)]) => "cuStreamBatchMemOp_v2";
    }
    // Everything was called, except for the functions that the fake must have, the older form of one, and those of
    // kernel nodes, which the next test calls.
    let rest: BTreeSet<_> = symbols().filter(|s| !called.contains(s)).collect();
    assert_eq!(
        rest,
        BTreeSet::from([
            "cuDriverGetVersion",
            "cuGetErrorName",
            "cuGetErrorString",
            "cuGraphAddKernelNode_v2",
            "cuGraphKernelNodeCopyAttributes",
            "cuGraphKernelNodeGetParams_v2",
            "cuGraphKernelNodeSetParams_v2",
            "cuStreamGetCaptureInfo_v2",
        ])
    );
}

/// Nodes and edges are passed in the order and the form that the driver expects.
#[test]
fn kernel_nodes_are_copied_with_their_edges_and_changed() {
    let functions = [
        (
            "cuGraphNodeGetType",
            "int cuGraphNodeGetType(void *node, unsigned *type) { *type = node == (void *)0x20 ? 0 : 1; return 0; }",
        ),
        (
            "cuGraphKernelNodeGetParams_v2",
            "int cuGraphKernelNodeGetParams_v2(void *node, void **params) { params[0] = (void *)0x40; ((unsigned *)params)[2] = 7; return node != (void *)0x20; }",
        ),
        (
            // Accepts the same kernel and grid, with the address of one argument.
            "cuGraphKernelNodeSetParams_v2",
            "int cuGraphKernelNodeSetParams_v2(void *node, void **params) {
                int same = params[0] == (void *)0x40 && ((unsigned *)params)[2] == 7;
                return node != (void *)0x20 || !same || *((int **)params[5])[0] != 9 || params[6]; }",
        ),
        (
            "cuGraphAddKernelNode_v2",
            "int cuGraphAddKernelNode_v2(void **node, void *graph, void *before, size_t count, void **params) {
                *node = (void *)0x30; return graph != (void *)0x10 || before || count || params[0] != (void *)0x40 || ((unsigned *)params)[2] != 7; }",
        ),
        (
            "cuGraphKernelNodeCopyAttributes",
            "int cuGraphKernelNodeCopyAttributes(void *to, void *from) { return to != (void *)0x30 || from != (void *)0x20; }",
        ),
        (
            "cuGraphGetEdges_v2",
            "static void *ends[2][8]; static unsigned char kinds[64]; static size_t added;
            int cuGraphGetEdges_v2(void *graph, void **from, void **to, unsigned char *how, size_t *count) {
                if (graph == (void *)0x11) { int asked = from || to || how; *count = 0; return asked; }
                *count = added; if (!from) return to || how;
                memcpy(from, ends[0], 8 * added); memcpy(to, ends[1], 8 * added); memcpy(how, kinds, 8 * added);
                return graph != (void *)0x10; }",
        ),
        (
            // As in the driver, all edges of a call get the kind of the first.
            "cuGraphAddDependencies_v2",
            "static void *ends[2][8]; static unsigned char kinds[64]; static size_t added;
            int cuGraphAddDependencies_v2(void *graph, void **from, void **to, unsigned char *how, size_t count) {
                for (size_t i = 0; i < count && added < 8; i++, added++) {
                    ends[0][added] = from[i]; ends[1][added] = to[i]; memcpy(kinds + 8 * added, how, 8); }
                return graph != (void *)0x10; }",
        ),
    ];
    let Some(d) = driver(&functions, &[]) else {
        return;
    };
    let node = |at: usize| GraphNode::from_raw(std::ptr::without_provenance_mut(at));
    let graph = Graph::from_raw(std::ptr::without_provenance_mut(0x10));
    // SAFETY: the fake looks at the handles only, and writes what these functions document.
    unsafe {
        assert!(d.graph_kernel_node(node(0x21)).expect("type").is_none());
        let kernel = d
            .graph_kernel_node(node(0x20))
            .expect("type")
            .expect("a kernel");
        assert_eq!(d.graph_add_kernel(graph, &kernel), Ok(node(0x30)));
        let set = |mut value: i32| {
            d.graph_set_arguments(&kernel, &mut [std::ptr::from_mut(&mut value).cast()])
        };
        assert_eq!(set(9), Ok(()));
        assert!(set(8).is_err());
        let edge = |from, to, how| Edge {
            from: node(from),
            to: node(to),
            how,
        };
        let [plain, early] = [Dependency::OVER, Dependency::PROGRAMMATIC];
        let edges = [
            edge(0x20, 0x21, early),
            edge(0x21, 0x22, plain),
            edge(0x22, 0x23, early),
            edge(0x21, 0x23, plain),
        ];
        assert_eq!(d.graph_add_edges(graph, &edges), Ok(()));
        let added = d.graph_edges(graph).expect("edges");
        let parts = |edge: &Edge| (edge.from, edge.to, edge.how == early);
        let [mut asked, mut added] = [&edges[..], &added].map(|edges| {
            let each = edges.iter().map(parts);
            each.map(|(from, to, early)| (from.as_raw() as usize, to.as_raw() as usize, early))
                .collect::<Vec<_>>()
        });
        asked.sort();
        added.sort();
        assert_eq!(asked, added);
        // If a graph has no edges, the driver refuses the second call, so it must not be made.
        let alone = Graph::from_raw(std::ptr::without_provenance_mut(0x11));
        assert!(d.graph_edges(alone).expect("no edges").is_empty());
    }
}

#[test]
fn a_function_that_the_driver_lacks_fails_only_when_it_is_called() {
    let info = (
        "cuStreamGetCaptureInfo_v2",
        "static void *nodes[] = {(void *)0x21, (void *)0x22};
        int cuStreamGetCaptureInfo_v2(void *s, unsigned *status, uint64_t *id, void **g, void ***n, uint64_t *c) {
            *status = 1; *id = 77; *g = (void *)0x10; *n = nodes; *c = 2; return 0; }",
    );
    let Some(d) = driver(&[info], OPTIONAL) else {
        return;
    };
    // SAFETY: the driver has no such function, so nothing is called.
    let error = unsafe { d.func_load(Function::NULL) }.expect_err("missing");
    assert!(error.is_missing() && error.kind() == ErrorKind::Unsupported);
    assert!(error.to_string().contains("cuFuncLoad"), "{error}");
    assert!(error.to_string().contains("13.0"), "{error}");
    // SAFETY: the fake does not look at the stream.
    let info = unsafe { d.stream_capture_info(Stream::NULL) }.expect("the older form");
    assert_eq!((info.status, info.id), (CaptureStatus::Active, 77));
    assert_eq!(info.graph.as_raw() as usize, 0x10);
    let last: Vec<_> = info
        .last
        .iter()
        .map(|node| node.as_raw() as usize)
        .collect();
    assert_eq!(last, [0x21, 0x22]);
}

#[test]
fn errors_tell_a_missing_function_an_old_version_and_a_stub_apart() {
    let Some(lacking) = fake(&[VERSION], &["cuMemMap"]) else {
        return;
    };
    match lacking.expect_err("a function is missing") {
        LoadError::Symbol { symbol, .. } => assert_eq!(symbol, "cuMemMap"),
        other => panic!("{other:?}"),
    }
    let old = "int cuDriverGetVersion(int *v) { *v = 11080; return 0; }";
    // It also lacks a function, but its version tells more.
    let old = fake(&[("cuDriverGetVersion", old)], &["cuMemMap"]).expect("compiled before");
    let error = old.expect_err("too old");
    assert!(
        matches!(error, LoadError::TooOld { found: 11_080, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("11.8"), "{error}");
    let stub = "int cuDriverGetVersion(int *v) { return 34; }";
    let stub = fake(&[("cuDriverGetVersion", stub)], &[]).expect("compiled before");
    let error = stub.expect_err("a stub");
    assert!(
        matches!(error, LoadError::Version { code: 34, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("stub"), "{error}");
}

#[test]
fn not_ready_is_an_answer_and_a_known_code_has_a_description() {
    let Some(d) = driver(
        &[
            ("cuStreamQuery", "int cuStreamQuery() { return 600; }"),
            ("cuEventQuery", "int cuEventQuery() { return 0; }"),
            (
                "cuEventElapsedTime",
                "int cuEventElapsedTime() { return 600; }",
            ),
            ("cuMemHostAlloc", "int cuMemHostAlloc() { return 2; }"),
            (
                "cuGetErrorString",
                r#"int cuGetErrorString(int c, const char **s) { *s = "out of memory"; return 0; }"#,
            ),
        ],
        &[],
    ) else {
        return;
    };
    // SAFETY: the fake does not look at the handles.
    unsafe {
        assert_eq!(d.stream_query(Stream::NULL), Ok(false));
        assert_eq!(d.event_query(Event::NULL), Ok(true));
        assert_eq!(d.event_elapsed_ms(Event::NULL, Event::NULL), Ok(None));
    }
    let error = d.mem_host_alloc(8, HostFlags::NONE).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(
        error.to_string(),
        "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
    );
}

#[test]
fn the_compilers_log_is_in_the_error() {
    let body = r#"int cuModuleLoadDataEx(void **m, const void *i, unsigned n, int *o, void **v) {
        if (n != 2 || o[0] != 5 || o[1] != 6) return 1;
        /* As a driver may: the whole buffer, without a NUL. */
        memset(v[0], 'x', (size_t)v[1]);
        memcpy(v[0], "ptxas fatal: line 3", 19);
        return 218;
    }"#;
    let Some(d) = driver(&[("cuModuleLoadDataEx", body)], &[]) else {
        return;
    };
    let error = d.module_load_ptx(PTX).expect_err("refused");
    assert_eq!(error.code, 218);
    assert!(error.text.starts_with("ptxas fatal: line 3x"), "{error}");
    // Images that the driver would not read as text do not reach it.
    for other in [
        c"\x7fELF\x02\x01\x01",
        c"P\xed\x55\xba",
        c"",
        c".version 8.0",
    ] {
        let error = d.module_load_ptx(other).expect_err("refused");
        assert!(error.code == 200 && error.text.contains("as PTX does"));
    }
}

#[test]
fn descriptors_are_passed_unchanged_and_impossible_answers_are_errors() {
    let Some(d) = driver(
        &[
            (
                "cuMemExportToShareableHandle",
                "int dup(int); int cuMemExportToShareableHandle(int *fd, uint64_t h, int type, uint64_t flags) {
                    *fd = h == 9 ? -1 : dup(2); return type != 1 || flags != 0; }",
            ),
            (
                "cuMemImportFromShareableHandle",
                "int cuMemImportFromShareableHandle(uint64_t *h, void *fd, int type) {
                    *h = (uint64_t)fd; return type != 1; }",
            ),
            ("cuMemHostAlloc", "int cuMemHostAlloc(void **p) { *p = 0; return 0; }"),
        ],
        &[],
    ) else {
        return;
    };
    // SAFETY: the fake looks at the handle as a number only.
    let fd = unsafe { d.mem_export_fd(MemHandle(1)) }.expect("a descriptor");
    let handle = d.mem_import_fd(fd.as_fd()).expect("a handle");
    assert_eq!(handle.0, fd.as_raw_fd() as u64);
    // SAFETY: as above.
    let error = unsafe { d.mem_export_fd(MemHandle(9)) }.expect_err("no descriptor");
    assert_eq!(error.code, CudaError::UNEXPECTED);
    let error = d.mem_host_alloc(8, HostFlags::NONE).expect_err("null");
    assert_eq!(error.code, CudaError::UNEXPECTED);
}
