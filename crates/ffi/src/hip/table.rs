//! The table of the runtime's functions.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::sys::*;
use crate::open::find;

/// The functions: method, symbol, arguments. All but those of `texts` return a code. ROCm 6.0 lacks only those of
/// `newer`. The test compares each with the header's, so the list is a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! hip_functions {
    ($each:ident) => {
        $each! {
            texts {
                get_error_name = hipGetErrorName(code: hipError_t);
                get_error_string = hipGetErrorString(code: hipError_t);
            }
            functions {
                init = hipInit(flags: c_uint);
                runtime_get_version = hipRuntimeGetVersion(version: *mut c_int);

                get_device_count = hipGetDeviceCount(count: *mut c_int);
                set_device = hipSetDevice(device: c_int);
                device_get_p2p_attribute = hipDeviceGetP2PAttribute(
                    value: *mut c_int, attribute: hipDeviceP2PAttr, from: c_int, to: c_int
                );
                device_enable_peer_access = hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint);
                get_device_properties = hipGetDevicePropertiesR0600(
                    properties: *mut hipDeviceProp_tR0600, device: c_int
                );

                ext_stream_create_with_cu_mask = hipExtStreamCreateWithCUMask(
                    stream: *mut hipStream_t, words: u32, mask: *const u32
                );
                stream_destroy = hipStreamDestroy(stream: hipStream_t);
                stream_synchronize = hipStreamSynchronize(stream: hipStream_t);
                stream_query = hipStreamQuery(stream: hipStream_t);
                stream_wait_event = hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint);
                launch_host_func = hipLaunchHostFunc(
                    stream: hipStream_t, function: hipHostFn_t, data: *mut c_void
                );
                stream_begin_capture = hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode);
                stream_end_capture = hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t);
                stream_get_capture_info = hipStreamGetCaptureInfo_v2(
                    stream: hipStream_t, status: *mut hipStreamCaptureStatus, id: *mut c_ulonglong,
                    graph: *mut hipGraph_t, nodes: *mut *const hipGraphNode_t, count: *mut usize
                );

                event_create = hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint);
                event_destroy = hipEventDestroy(event: hipEvent_t);
                event_record = hipEventRecord(event: hipEvent_t, stream: hipStream_t);
                event_query = hipEventQuery(event: hipEvent_t);
                event_elapsed_time = hipEventElapsedTime(ms: *mut f32, from: hipEvent_t, to: hipEvent_t);

                graph_create = hipGraphCreate(graph: *mut hipGraph_t, flags: c_uint);
                graph_destroy = hipGraphDestroy(graph: hipGraph_t);
                graph_get_nodes = hipGraphGetNodes(
                    graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize
                );
                graph_add_child_graph_node = hipGraphAddChildGraphNode(
                    node: *mut hipGraphNode_t, graph: hipGraph_t, behind: *const hipGraphNode_t, count: usize,
                    child: hipGraph_t
                );
                graph_instantiate = hipGraphInstantiateWithFlags(
                    exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: c_ulonglong
                );
                graph_upload = hipGraphUpload(exec: hipGraphExec_t, stream: hipStream_t);
                graph_launch = hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t);
                graph_exec_destroy = hipGraphExecDestroy(exec: hipGraphExec_t);

                memcpy_h_to_d_async = hipMemcpyHtoDAsync(
                    to: hipDeviceptr_t, from: *const c_void, bytes: usize, stream: hipStream_t
                );
                memcpy_d_to_h_async = hipMemcpyDtoHAsync(
                    to: *mut c_void, from: hipDeviceptr_t, bytes: usize, stream: hipStream_t
                );
                memcpy_d_to_d_async = hipMemcpyDtoDAsync(
                    to: hipDeviceptr_t, from: hipDeviceptr_t, bytes: usize, stream: hipStream_t
                );
                memset_d8_async = hipMemsetD8Async(
                    to: hipDeviceptr_t, value: c_uchar, bytes: usize, stream: hipStream_t
                );
                host_malloc = hipHostMalloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
                host_register = hipHostRegister(address: *mut c_void, bytes: usize, flags: c_uint);
                host_unregister = hipHostUnregister(address: *mut c_void);
                host_get_device_pointer = hipHostGetDevicePointer(
                    device: *mut *mut c_void, host: *mut c_void, flags: c_uint
                );
                pointer_get_attribute = hipPointerGetAttribute(
                    value: *mut c_void, attribute: hipPointer_attribute, address: hipDeviceptr_t
                );
                malloc_from_pool_async = hipMallocFromPoolAsync(
                    address: *mut *mut c_void, bytes: usize, pool: hipMemPool_t, stream: hipStream_t
                );
                free_async = hipFreeAsync(address: *mut c_void, stream: hipStream_t);
                mem_pool_create = hipMemPoolCreate(pool: *mut hipMemPool_t, properties: *const hipMemPoolProps);
                mem_pool_set_attribute = hipMemPoolSetAttribute(
                    pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void
                );

                ext_malloc_with_flags = hipExtMallocWithFlags(
                    address: *mut *mut c_void, bytes: usize, flags: c_uint
                );
                free = hipFree(address: *mut c_void);
                mem_get_address_range = hipMemGetAddressRange(
                    base: *mut hipDeviceptr_t, bytes: *mut usize, address: hipDeviceptr_t
                );
                ipc_get_mem_handle = hipIpcGetMemHandle(handle: *mut hipIpcMemHandle_t, address: *mut c_void);
                ipc_open_mem_handle = hipIpcOpenMemHandle(
                    address: *mut *mut c_void, handle: hipIpcMemHandle_t, flags: c_uint
                );
                ipc_close_mem_handle = hipIpcCloseMemHandle(address: *mut c_void);

                mem_get_allocation_granularity = hipMemGetAllocationGranularity(
                    bytes: *mut usize, properties: *const hipMemAllocationProp,
                    option: hipMemAllocationGranularity_flags
                );
                mem_create = hipMemCreate(
                    handle: *mut hipMemGenericAllocationHandle_t, bytes: usize,
                    properties: *const hipMemAllocationProp, flags: c_ulonglong
                );
                mem_release = hipMemRelease(handle: hipMemGenericAllocationHandle_t);
                mem_address_reserve = hipMemAddressReserve(
                    address: *mut *mut c_void, bytes: usize, alignment: usize, hint: *mut c_void,
                    flags: c_ulonglong
                );
                mem_address_free = hipMemAddressFree(address: *mut c_void, bytes: usize);
                mem_map = hipMemMap(
                    address: *mut c_void, bytes: usize, offset: usize, handle: hipMemGenericAllocationHandle_t,
                    flags: c_ulonglong
                );
                mem_unmap = hipMemUnmap(address: *mut c_void, bytes: usize);
                mem_set_access = hipMemSetAccess(
                    address: *mut c_void, bytes: usize, access: *const hipMemAccessDesc, count: usize
                );
                mem_export_to_shareable_handle = hipMemExportToShareableHandle(
                    shareable: *mut c_void, handle: hipMemGenericAllocationHandle_t,
                    kind: hipMemAllocationHandleType, flags: c_ulonglong
                );
                mem_import_from_shareable_handle = hipMemImportFromShareableHandle(
                    handle: *mut hipMemGenericAllocationHandle_t, shareable: *mut c_void,
                    kind: hipMemAllocationHandleType
                );

                module_load_data = hipModuleLoadData(module: *mut hipModule_t, image: *const c_void);
                module_get_function = hipModuleGetFunction(
                    function: *mut hipFunction_t, module: hipModule_t, name: *const c_char
                );
                module_occupancy = hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                    blocks: *mut c_int, function: hipFunction_t, threads: c_int, shared: usize
                );
                module_launch_kernel = hipModuleLaunchKernel(
                    function: hipFunction_t, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
                    block_y: c_uint, block_z: c_uint, shared: c_uint, stream: hipStream_t,
                    arguments: *mut *mut c_void, extra: *mut *mut c_void
                );
            }
            newer {
                event_record_with_flags = hipEventRecordWithFlags(
                    event: hipEvent_t, stream: hipStream_t, flags: c_uint
                );
            }
        }
    };
}

macro_rules! table {
    (
        texts { $($text:ident = $text_symbol:ident($code:ident: $code_type:ty);)* }
        functions { $($name:ident = $symbol:ident($($arg:ident: $type:ty),*);)* }
        newer { $($newer:ident = $newer_symbol:ident($($newer_arg:ident: $newer_type:ty),*);)* }
    ) => {
        /// The functions. Where the library lacks one, there is `None`.
        pub(crate) struct Table {
            $(pub(crate) $text: Option<unsafe extern "C" fn($code_type) -> *const c_char>,)*
            $(pub(crate) $name: Option<unsafe extern "C" fn($($type),*) -> hipError_t>,)*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_type),*) -> hipError_t>,)*
        }

        impl Table {
            /// Finds the functions.
            ///
            /// # Safety
            ///
            /// Each function of the library with a name of the table has the type that stands here.
            pub(crate) unsafe fn fill(library: &Library) -> Table {
                Table {
                    // SAFETY: the caller vouches for the type.
                    $($text: unsafe { find(library, stringify!($text_symbol)) },)*
                    // SAFETY: as above.
                    $($name: unsafe { find(library, stringify!($symbol)) },)*
                    // SAFETY: as above.
                    $($newer: unsafe { find(library, stringify!($newer_symbol)) },)*
                }
            }

            /// The first function that ROCm 6.0 has and this library lacks.
            pub(crate) fn lacks(&self) -> Option<&'static str> {
                $(if self.$text.is_none() {
                    return Some(stringify!($text_symbol));
                })*
                $(if self.$name.is_none() {
                    return Some(stringify!($symbol));
                })*
                None
            }
        }
    };
}

hip_functions!(table);
