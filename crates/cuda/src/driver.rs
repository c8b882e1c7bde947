//! The calls of the CUDA driver.

use std::ffi::{CStr, c_void};
use std::os::fd::AsFd;
use std::ptr::NonNull;

use tidegate_ffi::cuda::{
    self, AccessDesc, AllocationProp, Context, CudaError, Device, DevicePtr, EventFlags,
    GraphFlags, HostFlags, LaunchConfig, MemHandle, MemOp, P2pAttribute, PointerAttribute, Pool,
    RegisterFlags,
};
use tidegate_gpu::driver::{
    Dependency, Doing as _, Driver, DriverError, Edge, ErrorKind, Event, Function, Graph,
    GraphExec, GraphNode, KernelNode, Launch, Module, PeerMemory, Result, Stream, WordOp,
};
use tidegate_hal::code::Code;
use tidegate_hal::control::Handle;
use tidegate_hal::device::{DeviceError, Priority};

use crate::code::{Loadable, choose};

/// The driver, as one GPU uses it.
pub(crate) struct CudaDriver {
    pub(crate) driver: &'static cuda::Driver,
    pub(crate) device: Device,
    pub(crate) context: Context,
    pub(crate) pool: Pool,
    /// The number by which the driver calls its highest priority.
    pub(crate) priority: i32,
    /// The compute capability.
    pub(crate) capability: (u32, u32),
}

/// The error, in the words of `tidegate-gpu`.
#[cold]
pub(crate) fn driver_error(error: CudaError) -> DriverError {
    let kind = if error.is_forked() {
        ErrorKind::Forked
    } else if error.is_out_of_memory() {
        ErrorKind::OutOfMemory
    } else if error.is_not_supported() {
        ErrorKind::Unsupported
    } else if error.is_invalid_value() {
        ErrorKind::Invalid
    } else if error.is_already_registered() {
        ErrorKind::AlreadyRegistered
    } else if error.is_capture_error() {
        ErrorKind::Capture
    } else if error.is_context_lost() {
        ErrorKind::ContextLost
    } else {
        ErrorKind::Other
    };
    DriverError {
        device: "cuda",
        kind,
        text: error.to_string(),
    }
}

/// The result of a call, in the words of `tidegate-gpu`.
fn told<T>(result: cuda::Result<T>) -> Result<T> {
    result.map_err(driver_error)
}

// The handles of both crates are the driver's own values.

fn stream(stream: Stream) -> cuda::Stream {
    cuda::Stream::from_raw(stream.0.cast())
}

fn event(event: Event) -> cuda::Event {
    cuda::Event::from_raw(event.0.cast())
}

fn graph(graph: Graph) -> cuda::Graph {
    cuda::Graph::from_raw(graph.0.cast())
}

fn node(node: GraphNode) -> cuda::GraphNode {
    cuda::GraphNode::from_raw(node.0.cast())
}

fn from_node(node: cuda::GraphNode) -> GraphNode {
    GraphNode(node.as_raw().cast())
}

fn exec(exec: GraphExec) -> cuda::GraphExec {
    cuda::GraphExec::from_raw(exec.0.cast())
}

fn function(function: Function) -> cuda::Function {
    cuda::Function::from_raw(function.0.cast())
}

impl CudaDriver {
    /// Maps physical memory, and takes its handle over.
    fn mapping(&self, handle: MemHandle, size: usize) -> Result<PeerMemory, DeviceError> {
        let (driver, what) = (self.driver, "mapping memory");
        let release = || {
            // SAFETY: the handle is not used any more.
            let _ = unsafe { driver.mem_release(handle) };
        };
        let reserved = told(driver.mem_address_reserve(size, 0, DevicePtr::NULL));
        let base = reserved.doing(what).inspect_err(|_| release())?;
        // SAFETY: the range was just reserved, and is as large as the mapping. The driver refuses a handle of less
        // memory.
        if let Err(error) = unsafe { driver.mem_map(base, size, 0, handle) } {
            release();
            // SAFETY: nothing is mapped there.
            let _ = unsafe { driver.mem_address_free(base, size) };
            return Err(DeviceError::BadHandle(error.to_string()));
        }
        let memory = PeerMemory {
            base: base.0,
            size,
            memory: handle.0,
        };
        // SAFETY: the range is mapped.
        let access =
            unsafe { driver.mem_set_access(base, size, &[AccessDesc::read_write(self.device)]) };
        told(access).doing(what).inspect_err(|_| {
            // SAFETY: it was just mapped, and nobody else has it.
            unsafe { self.unmap(memory) };
        })?;
        Ok(memory)
    }

    /// How memory for peers is allocated, and the unit of its size.
    fn shareable(&self, what: &'static str) -> Result<(AllocationProp, usize), DeviceError> {
        let prop = AllocationProp::pinned(self.device).shareable();
        let unit = told(self.driver.mem_granularity(&prop)).doing(what)?;
        Ok((prop, unit))
    }

    /// Checks that this GPU can add to words in the memory. Over a link without atomics (PCI Express mostly has none) an
    /// add would get lost, and a wait would end too early or never. If the driver does not tell, atomics are taken to
    /// work. That is so for GPUs that this process may not see, but their memory is not mapped in the first place.
    fn check_atomics(&self, memory: &PeerMemory) -> Result<(), DeviceError> {
        let owner = self.driver.pointer_attribute(
            DevicePtr(memory.base),
            PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        );
        let Ok(owner) = owner.map(|owner| Device(owner as i32)) else {
            return Ok(());
        };
        let (own, native) = (
            self.device,
            P2pAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        );
        if owner != own && self.driver.device_p2p_attribute(native, own, owner) == Ok(0) {
            return Err(DeviceError::Unsupported {
                device: "cuda",
                what: format!(
                    "adds from GPU {} to words of GPU {}: the link between them has no atomics (a NIC can reach it: `Route::Nic`)",
                    own.0, owner.0
                ),
            });
        }
        Ok(())
    }
}

// SAFETY: each method is one call of the CUDA driver, which does what NVIDIA documents for it, or a few. A CUDA stream
// executes in order.
unsafe impl Driver for CudaDriver {
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is never released.
        told(unsafe { self.driver.ctx_set_current(self.context) })
    }

    unsafe fn alloc(&self, bytes: usize, on: Stream) -> Result<u64> {
        // SAFETY: the pool is never destroyed; the caller promises for the stream.
        let base = unsafe {
            self.driver
                .mem_alloc_from_pool_async(bytes, self.pool, stream(on))
        };
        told(base).map(|base| base.0)
    }

    unsafe fn free(&self, at: u64, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.mem_free_async(DevicePtr(at), stream(on)) })
    }

    fn alloc_for_peers(&self, bytes: usize) -> Result<PeerMemory, DeviceError> {
        let what = "allocating memory for peers";
        let (prop, unit) = self.shareable(what)?;
        let size = bytes
            .checked_next_multiple_of(unit)
            .ok_or_else(|| DeviceError::Exhausted {
                what: "memory of the device",
                detail: format!("{bytes} bytes"),
            })?;
        let handle = told(self.driver.mem_create(size, &prop)).doing(what)?;
        self.mapping(handle, size)
    }

    fn map_peer(&self, handle: Handle, bytes: usize) -> Result<PeerMemory, DeviceError> {
        let fd = match handle {
            Handle::Fd(fd) => fd,
            Handle::Lost(why) => {
                return Err(DeviceError::Exhausted {
                    what: "descriptors",
                    detail: why,
                });
            }
            _ => {
                return Err(DeviceError::BadHandle(
                    "memory of a GPU is handed over as a file descriptor".into(),
                ));
            }
        };
        let (_, unit) = self.shareable("mapping a peer's memory")?;
        let handle = self
            .driver
            .mem_import_fd(fd.as_fd())
            .map_err(|error| DeviceError::BadHandle(error.to_string()))?;
        let memory = self.mapping(handle, bytes.next_multiple_of(unit))?;
        self.check_atomics(&memory).inspect_err(|_| {
            // SAFETY: it was just mapped, and nobody else has it.
            unsafe { self.unmap(memory) };
        })?;
        Ok(memory)
    }

    unsafe fn export(&self, memory: &PeerMemory) -> Result<Handle, DeviceError> {
        // SAFETY: the caller promises that the memory is not given up yet.
        let fd = unsafe { self.driver.mem_export_fd(MemHandle(memory.memory)) };
        told(fd).doing("exporting memory").map(Handle::Fd)
    }

    unsafe fn unmap(&self, memory: PeerMemory) {
        let base = DevicePtr(memory.base);
        // SAFETY: mapped by `mapping`, and not used any more, as the caller promises. If a call fails, the memory leaks.
        let _ = unsafe { self.driver.mem_unmap(base, memory.size) };
        // SAFETY: nothing is mapped there now.
        let _ = unsafe { self.driver.mem_address_free(base, memory.size) };
        // SAFETY: the handle is this memory's.
        let _ = unsafe { self.driver.mem_release(MemHandle(memory.memory)) };
    }

    fn pin(&self, bytes: usize) -> Result<NonNull<u8>> {
        let flags = HostFlags::PORTABLE | HostFlags::DEVICE_MAP;
        told(self.driver.mem_host_alloc(bytes, flags)).map(NonNull::cast)
    }

    unsafe fn register(&self, page: NonNull<c_void>, bytes: usize, registers: bool) -> Result<()> {
        let flags = if registers {
            RegisterFlags::DEVICE_MAP | RegisterFlags::IO_MEMORY
        } else {
            RegisterFlags::DEVICE_MAP
        };
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.mem_host_register(page, bytes, flags) })
    }

    unsafe fn registered(&self, page: NonNull<c_void>) -> Result<u64> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.mem_host_device_ptr(page) }).map(|at| at.0)
    }

    unsafe fn unregister(&self, page: NonNull<c_void>) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.mem_host_unregister(page) })
    }

    fn is_here(&self, at: u64) -> bool {
        // `CU_MEMORYTYPE_DEVICE`: pinned memory of the host may have an ordinal, too.
        const OF_A_GPU: u64 = 2;
        let is = |attribute, wanted: u64| {
            self.driver.pointer_attribute(DevicePtr(at), attribute) == Ok(wanted)
        };
        is(PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, OF_A_GPU)
            && is(
                PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                self.device.0 as u64,
            )
    }

    unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .memcpy_htod_async(DevicePtr(to), from.cast(), bytes, stream(on))
        })
    }

    unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .memcpy_dtoh_async(to.cast(), DevicePtr(from), bytes, stream(on))
        })
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .memcpy_dtod_async(DevicePtr(to), DevicePtr(from), bytes, stream(on))
        })
    }

    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .memset_d8_async(DevicePtr(to), byte, bytes, stream(on))
        })
    }

    fn stream_create(&self, priority: Priority) -> Result<Stream> {
        let priority = match priority {
            Priority::High => self.priority,
            _ => 0,
        };
        told(self.driver.stream_create(priority)).map(|made| Stream(made.as_raw().cast()))
    }

    unsafe fn stream_destroy(&self, of: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.stream_destroy(stream(of)) })
    }

    unsafe fn stream_synchronize(&self, of: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.stream_synchronize(stream(of)) })
    }

    unsafe fn stream_query(&self, of: Stream) -> Result<bool> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.stream_query(stream(of)) })
    }

    unsafe fn stream_wait_event(&self, on: Stream, awaited: Event) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.stream_wait_event(stream(on), event(awaited)) })
    }

    unsafe fn stream_word_ops(&self, on: Stream, ops: &[WordOp]) -> Result<()> {
        let ops = ops.iter().map(|op| match *op {
            WordOp::Wait(word, value) => MemOp::wait64(DevicePtr(word), value),
            WordOp::Write32(word, value) => MemOp::write32(DevicePtr(word), value),
            WordOp::Write(word, value) => MemOp::write64(DevicePtr(word), value),
        });
        let mut ops: Vec<_> = ops.collect();
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.stream_batch_mem_op(stream(on), &mut ops) })
    }

    unsafe fn stream_call(
        &self,
        on: Stream,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.launch_host_func(stream(on), function, data) })
    }

    fn event_create(&self, time: bool) -> Result<Event> {
        let flags = if time {
            EventFlags::DEFAULT
        } else {
            EventFlags::DISABLE_TIMING
        };
        told(self.driver.event_create(flags)).map(|made| Event(made.as_raw().cast()))
    }

    unsafe fn event_destroy(&self, of: Event) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.event_destroy(event(of)) })
    }

    unsafe fn event_record(&self, of: Event, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.event_record(event(of), stream(on)) })
    }

    unsafe fn event_record_in_graph(&self, of: Event, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.event_record_external(event(of), stream(on)) })
    }

    unsafe fn event_query(&self, of: Event) -> Result<bool> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.event_query(event(of)) })
    }

    unsafe fn event_elapsed_ms(&self, from: Event, to: Event) -> Result<Option<f32>> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.event_elapsed_ms(event(from), event(to)) })
    }

    unsafe fn capture_begin(&self, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.stream_begin_capture(stream(on)) })
    }

    unsafe fn capture_end(&self, on: Stream) -> Result<Graph> {
        // SAFETY: the caller's promise.
        let made = unsafe { self.driver.stream_end_capture(stream(on)) };
        told(made).map(|made| Graph(made.as_raw().cast()))
    }

    unsafe fn capture_last(&self, on: Stream) -> Result<Vec<GraphNode>> {
        // SAFETY: the caller's promise.
        let info = unsafe { self.driver.stream_capture_info(stream(on)) };
        told(info).map(|info| info.last.into_iter().map(from_node).collect())
    }

    fn graph_create(&self) -> Result<Graph> {
        told(self.driver.graph_create()).map(|made| Graph(made.as_raw().cast()))
    }

    unsafe fn graph_destroy(&self, of: Graph) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.graph_destroy(graph(of)) })
    }

    unsafe fn graph_node_count(&self, of: Graph) -> Result<usize> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.graph_node_count(graph(of)) })
    }

    unsafe fn graph_nodes(&self, of: Graph) -> Result<Vec<GraphNode>> {
        // SAFETY: the caller's promise.
        let nodes = unsafe { self.driver.graph_nodes(graph(of)) };
        told(nodes).map(|nodes| nodes.into_iter().map(from_node).collect())
    }

    unsafe fn graph_edges(&self, of: Graph) -> Result<Vec<Edge>> {
        // SAFETY: the caller's promise.
        let edges = told(unsafe { self.driver.graph_edges(graph(of)) })?;
        let neutral = |edge: cuda::Edge| Edge {
            from: from_node(edge.from),
            to: from_node(edge.to),
            how: match edge.how {
                how if how == cuda::Dependency::OVER => Dependency::Over,
                how if how == cuda::Dependency::PROGRAMMATIC => Dependency::Early,
                _ => Dependency::Other,
            },
        };
        Ok(edges.into_iter().map(neutral).collect())
    }

    unsafe fn graph_kernel(&self, of: GraphNode) -> Result<Option<KernelNode>> {
        // SAFETY: the caller's promise.
        let kernel = told(unsafe { self.driver.graph_kernel_node(node(of)) })?;
        Ok(kernel.map(|kernel| KernelNode {
            function: Function(kernel.function().as_raw().cast()),
            arguments: kernel.arguments(),
        }))
    }

    unsafe fn graph_set_arguments(
        &self,
        of: GraphNode,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let kernel = told(unsafe { self.driver.graph_kernel_node(node(of)) })?;
        let kernel = kernel.expect("the caller gives a kernel's node");
        // SAFETY: the caller's promise; the node was just asked for its kernel.
        told(unsafe { self.driver.graph_set_arguments(&kernel, arguments) })
    }

    unsafe fn graph_add_copy(&self, into: Graph, kernel: GraphNode) -> Result<GraphNode> {
        // SAFETY: the caller's promise.
        let kernel = told(unsafe { self.driver.graph_kernel_node(node(kernel)) })?;
        let kernel = kernel.expect("the caller gives a kernel's node");
        // SAFETY: the caller's promise; the node was just asked for its kernel.
        told(unsafe { self.driver.graph_add_kernel(graph(into), &kernel) }).map(from_node)
    }

    unsafe fn graph_add_edges(&self, of: Graph, edges: &[Edge]) -> Result<()> {
        let own = |edge: &Edge| cuda::Edge {
            from: node(edge.from),
            to: node(edge.to),
            how: match edge.how {
                Dependency::Early => cuda::Dependency::PROGRAMMATIC,
                _ => cuda::Dependency::OVER,
            },
        };
        let edges: Vec<_> = edges.iter().map(own).collect();
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.graph_add_edges(graph(of), &edges) })
    }

    unsafe fn graph_add_child(
        &self,
        of: Graph,
        behind: &[GraphNode],
        child: Graph,
    ) -> Result<GraphNode> {
        let behind: Vec<_> = behind.iter().map(|each| node(*each)).collect();
        // SAFETY: the caller's promise.
        let made = unsafe {
            self.driver
                .graph_add_child(graph(of), &behind, graph(child))
        };
        told(made).map(from_node)
    }

    unsafe fn graph_instantiate(&self, of: Graph, priorities: bool) -> Result<GraphExec> {
        let flags = if priorities {
            GraphFlags::USE_NODE_PRIORITY
        } else {
            GraphFlags::NONE
        };
        // SAFETY: the caller's promise.
        let made = unsafe { self.driver.graph_instantiate(graph(of), flags) };
        told(made).map(|made| GraphExec(made.as_raw().cast()))
    }

    unsafe fn graph_upload(&self, of: GraphExec, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.graph_upload(exec(of), stream(on)) })
    }

    unsafe fn graph_launch(&self, of: GraphExec, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.graph_launch(exec(of), stream(on)) })
    }

    unsafe fn graph_exec_destroy(&self, of: GraphExec) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.graph_exec_destroy(exec(of)) })
    }

    fn load(&self, code: &Code<'_>) -> Result<Module, DeviceError> {
        let module = match &Loadable::new(choose(code, self.capability)?)? {
            Loadable::Text(ptx) => self.driver.module_load_ptx(ptx),
            // SAFETY: `Loadable::new` has checked that the image contains everything that its sizes name. The driver checks
            // the contents, as it does with PTX, and executes nothing.
            Loadable::Image(words) => unsafe { self.driver.module_load_image(words) },
        };
        let module = module.map_err(|error| DeviceError::Code(error.to_string()))?;
        Ok(Module(module.as_raw().cast()))
    }

    unsafe fn function(
        &self,
        module: Module,
        name: &CStr,
    ) -> Result<(Function, Option<Vec<usize>>)> {
        let module = cuda::Module::from_raw(module.0.cast());
        // SAFETY: the caller's promise.
        let made = told(unsafe { self.driver.module_function(module, name) })?;
        // The function is loaded now, and not behind a wait. If the driver cannot do that, the first launch does.
        // SAFETY: as above.
        let _ = unsafe { self.driver.func_load(made) };
        let mut sizes = Vec::new();
        let sizes = loop {
            // SAFETY: as above.
            match unsafe { self.driver.func_param_info(made, sizes.len()) } {
                Ok((_, size)) => sizes.push(size),
                // An older driver cannot tell.
                Err(error) if error.is_missing() => break None,
                Err(_) => break Some(sizes),
            }
        };
        Ok((Function(made.as_raw().cast()), sizes))
    }

    unsafe fn resident_blocks(&self, of: Function, threads: usize) -> Result<u32> {
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .max_active_blocks_per_multiprocessor(function(of), threads as u32, 0)
        })
    }

    unsafe fn launch(
        &self,
        of: Function,
        launch: &Launch,
        on: Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let config = LaunchConfig::new(launch.blocks, launch.threads)
            .shared_bytes(launch.shared)
            .programmatic_stream_serialization(launch.early);
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .launch_kernel_ex(function(of), &config, stream(on), arguments)
        })
    }
}
