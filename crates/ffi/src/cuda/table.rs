//! The table of the driver's functions.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::sys::*;
use crate::open::find;

/// A function and its name.
pub(crate) struct Entry<F> {
    pub(crate) name: &'static str,
    pub(crate) call: F,
}

/// Declares the table. Each row has a field, a symbol, and the types of the arguments. Each function returns its code
/// as a number.
///
/// Enumerations are passed *in* only. If the driver writes one, the argument is a pointer to an integer.
macro_rules! table {
    (
        required { $($required:ident = $symbol:literal($($arg:ty),* $(,)?);)* }
        optional { $($optional:ident = $optional_symbol:literal($($optional_arg:ty),* $(,)?);)* }
    ) => {
        /// The driver's functions.
        pub(crate) struct Table {
            $(pub(crate) $required: Entry<unsafe extern "C" fn($($arg),*) -> i32>,)*
            $(pub(crate) $optional: Entry<Option<unsafe extern "C" fn($($optional_arg),*) -> i32>>,)*
        }

        /// The symbols that a library must have to count as the driver, in the order in which they are looked for.
        pub const REQUIRED: &[&str] = &[$($symbol),*];

        /// The symbols that older drivers may lack. A call of a missing one is an error.
        pub const OPTIONAL: &[&str] = &[$($optional_symbol),*];

        impl Table {
            /// Finds all functions, or returns the first required symbol that `library` lacks.
            ///
            /// # Safety
            ///
            /// The functions that `library` has under these names take the arguments that are declared here, and return
            /// an `int`.
            pub(crate) unsafe fn fill(library: &Library) -> Result<Table, &'static str> {
                Ok(Table {
                    $($required: Entry {
                        name: $symbol,
                        // SAFETY: the caller vouches for the type of the function with this name.
                        call: unsafe { find(library, $symbol) }.ok_or($symbol)?,
                    },)*
                    $($optional: Entry {
                        name: $optional_symbol,
                        // SAFETY: the caller vouches for the type of the function with this name.
                        call: unsafe { find(library, $optional_symbol) },
                    },)*
                })
            }
        }
    };
}

/// Calls a function of the table: `call!(self.mem_host_alloc(&mut ptr, bytes, flags))`, inside `unsafe`.
macro_rules! call {
    ($driver:ident.$entry:ident($($arg:expr),* $(,)?)) => {
        $driver
            .here($driver.table.$entry.name)
            .and_then(|()| $driver.check($driver.table.$entry.name, ($driver.table.$entry.call)($($arg),*)))
    };
}
pub(crate) use call;

/// Calls a function that may be missing, in the same way.
macro_rules! call_optional {
    ($driver:ident.$entry:ident($($arg:expr),* $(,)?)) => {
        match $driver.table.$entry.call {
            Some(call) => $driver
                .here($driver.table.$entry.name)
                .and_then(|()| $driver.check($driver.table.$entry.name, call($($arg),*))),
            None => Err($driver.missing($driver.table.$entry.name)),
        }
    };
}
pub(crate) use call_optional;

table! {
    required {
        init = "cuInit"(c_uint);
        driver_get_version = "cuDriverGetVersion"(*mut c_int);
        get_error_name = "cuGetErrorName"(c_int, *mut *const c_char);
        get_error_string = "cuGetErrorString"(c_int, *mut *const c_char);

        device_get_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut CUdevice, c_int);
        device_get_name = "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
        device_get_uuid = "cuDeviceGetUuid_v2"(*mut CUuuid, CUdevice);
        device_get_attribute = "cuDeviceGetAttribute"(*mut c_int, CUdevice_attribute, CUdevice);
        device_get_p2p_attribute = "cuDeviceGetP2PAttribute"(*mut c_int, CUdevice_P2PAttribute, CUdevice, CUdevice);

        primary_ctx_retain = "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
        primary_ctx_set_flags = "cuDevicePrimaryCtxSetFlags_v2"(CUdevice, c_uint);
        ctx_set_current = "cuCtxSetCurrent"(CUcontext);
        ctx_get_stream_priority_range = "cuCtxGetStreamPriorityRange"(*mut c_int, *mut c_int);

        stream_create_with_priority = "cuStreamCreateWithPriority"(*mut CUstream, c_uint, c_int);
        stream_destroy = "cuStreamDestroy_v2"(CUstream);
        stream_synchronize = "cuStreamSynchronize"(CUstream);
        stream_query = "cuStreamQuery"(CUstream);
        stream_wait_event = "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
        stream_begin_capture = "cuStreamBeginCapture_v2"(CUstream, c_uint);
        stream_end_capture = "cuStreamEndCapture"(CUstream, *mut CUgraph);
        stream_get_capture_info = "cuStreamGetCaptureInfo_v2"(
            CUstream, *mut c_uint, *mut u64, *mut CUgraph, *mut *const CUgraphNode, *mut usize,
        );

        event_create = "cuEventCreate"(*mut CUevent, c_uint);
        event_destroy = "cuEventDestroy_v2"(CUevent);
        event_record = "cuEventRecord"(CUevent, CUstream);
        event_query = "cuEventQuery"(CUevent);
        event_elapsed_time = "cuEventElapsedTime"(*mut f32, CUevent, CUevent);

        graph_create = "cuGraphCreate"(*mut CUgraph, c_uint);
        graph_destroy = "cuGraphDestroy"(CUgraph);
        graph_get_nodes = "cuGraphGetNodes"(CUgraph, *mut CUgraphNode, *mut usize);
        graph_add_child_graph_node = "cuGraphAddChildGraphNode"(
            *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUgraph,
        );
        graph_instantiate_with_flags = "cuGraphInstantiateWithFlags"(*mut CUgraphExec, CUgraph, c_ulonglong);
        graph_upload = "cuGraphUpload"(CUgraphExec, CUstream);
        graph_launch = "cuGraphLaunch"(CUgraphExec, CUstream);
        graph_exec_destroy = "cuGraphExecDestroy"(CUgraphExec);

        memcpy_h_to_d_async = "cuMemcpyHtoDAsync_v2"(CUdeviceptr, *const c_void, usize, CUstream);
        memcpy_d_to_h_async = "cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, CUstream);
        memcpy_d_to_d_async = "cuMemcpyDtoDAsync_v2"(CUdeviceptr, CUdeviceptr, usize, CUstream);
        memset_d8_async = "cuMemsetD8Async"(CUdeviceptr, u8, usize, CUstream);
        mem_host_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        mem_host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        mem_host_unregister = "cuMemHostUnregister"(*mut c_void);
        mem_host_get_device_pointer = "cuMemHostGetDevicePointer_v2"(*mut CUdeviceptr, *mut c_void, c_uint);
        pointer_get_attribute = "cuPointerGetAttribute"(*mut c_void, CUpointer_attribute, CUdeviceptr);

        mem_alloc_from_pool_async = "cuMemAllocFromPoolAsync"(*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
        mem_free_async = "cuMemFreeAsync"(CUdeviceptr, CUstream);
        mem_pool_create = "cuMemPoolCreate"(*mut CUmemoryPool, *const CUmemPoolProps);
        mem_pool_set_attribute = "cuMemPoolSetAttribute"(CUmemoryPool, CUmemPool_attribute, *mut c_void);

        mem_get_allocation_granularity = "cuMemGetAllocationGranularity"(
            *mut usize, *const CUmemAllocationProp, c_uint,
        );
        mem_create = "cuMemCreate"(
            *mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong,
        );
        mem_release = "cuMemRelease"(CUmemGenericAllocationHandle);
        mem_address_reserve = "cuMemAddressReserve"(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        mem_address_free = "cuMemAddressFree"(CUdeviceptr, usize);
        mem_map = "cuMemMap"(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        mem_unmap = "cuMemUnmap"(CUdeviceptr, usize);
        mem_set_access = "cuMemSetAccess"(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
        mem_export_to_shareable_handle = "cuMemExportToShareableHandle"(
            *mut c_void, CUmemGenericAllocationHandle, CUmemAllocationHandleType, c_ulonglong,
        );
        mem_import_from_shareable_handle = "cuMemImportFromShareableHandle"(
            *mut CUmemGenericAllocationHandle, *mut c_void, CUmemAllocationHandleType,
        );

        module_load_data_ex = "cuModuleLoadDataEx"(
            *mut CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void,
        );
        module_get_function = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
        func_get_attribute = "cuFuncGetAttribute"(*mut c_int, CUfunction_attribute, CUfunction);
        func_set_attribute = "cuFuncSetAttribute"(CUfunction, CUfunction_attribute, c_int);
        occupancy_max_active_blocks_per_multiprocessor = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(
            *mut c_int, CUfunction, c_int, usize,
        );
        launch_kernel_ex = "cuLaunchKernelEx"(
            *const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void,
        );
        launch_host_func = "cuLaunchHostFunc"(CUstream, unsafe extern "C" fn(*mut c_void), *mut c_void);

        stream_batch_mem_op = "cuStreamBatchMemOp_v2"(CUstream, c_uint, *mut CUstreamBatchMemOpParams, c_uint);
    }
    optional {
        ctx_get_exec_affinity = "cuCtxGetExecAffinity"(*mut [c_uint; 2], CUexecAffinityType);
        stream_get_capture_info_v3 = "cuStreamGetCaptureInfo_v3"(
            CUstream, *mut c_uint, *mut u64, *mut CUgraph, *mut *const CUgraphNode,
            *mut *const CUgraphEdgeData, *mut usize,
        );
        graph_get_edges = "cuGraphGetEdges_v2"(
            CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, *mut usize,
        );
        graph_add_dependencies = "cuGraphAddDependencies_v2"(
            CUgraph, *const CUgraphNode, *const CUgraphNode, *const CUgraphEdgeData, usize,
        );
        graph_node_get_type = "cuGraphNodeGetType"(CUgraphNode, *mut c_uint);
        graph_kernel_node_get_params = "cuGraphKernelNodeGetParams_v2"(CUgraphNode, *mut CUDA_KERNEL_NODE_PARAMS_v2);
        graph_kernel_node_set_params = "cuGraphKernelNodeSetParams_v2"(CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS_v2);
        graph_kernel_node_copy_attributes = "cuGraphKernelNodeCopyAttributes"(CUgraphNode, CUgraphNode);
        graph_add_kernel_node = "cuGraphAddKernelNode_v2"(
            *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS_v2,
        );
        event_record_with_flags = "cuEventRecordWithFlags"(CUevent, CUstream, c_uint);
        func_get_param_info = "cuFuncGetParamInfo"(CUfunction, usize, *mut usize, *mut usize);
        func_load = "cuFuncLoad"(CUfunction);
    }
}
