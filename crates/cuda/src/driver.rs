//! The calls of the CUDA driver.

use std::ffi::{CStr, c_void};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use tidegate_ffi::cuda::{
    self, AccessDesc, AllocationProp, Context, Device, DevicePtr, EventFlags, GraphFlags,
    HostFlags, LaunchConfig, MemHandle, MemOp, P2pAttribute, PointerAttribute, Pool, RegisterFlags,
};
use tidegate_gpu::driver::{
    Dependency, Doing as _, Driver, Edge, Event, Function, Graph, GraphExec, GraphNode, KernelNode,
    Launch, Module, PeerMemory, Result, Stream, WordOp, no_atomics, told, whole_units,
};
use tidegate_hal::code::Code;
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
    /// The shared memory that a block can have, in bytes.
    pub(crate) block_shared: usize,
}

// The handles of both crates are the driver's own values.

macro_rules! own {
    ($($own:ident: $Handle:ident;)*) => {$(
        fn $own(handle: $Handle) -> cuda::$Handle {
            cuda::$Handle::from_raw(handle.0.cast())
        }
    )*};
}

own! {
    stream: Stream;
    event: Event;
    graph: Graph;
    node: GraphNode;
    exec: GraphExec;
    module: Module;
    function: Function;
}

fn from_node(node: cuda::GraphNode) -> GraphNode {
    GraphNode(node.as_raw().cast())
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
        access.doing(what).inspect_err(|_| {
            // SAFETY: it was just mapped, and nobody else has it.
            unsafe { self.unmap(memory) };
        })?;
        Ok(memory)
    }

    /// How memory for peers is allocated, and the unit of its size.
    fn shareable(&self, what: &'static str) -> Result<(AllocationProp, usize), DeviceError> {
        let prop = AllocationProp::pinned(self.device).shareable();
        let unit = self.driver.mem_granularity(&prop).doing(what)?;
        Ok((prop, unit))
    }

    /// Checks that this GPU can add to words in the memory. If the driver does not tell whose it is, that is taken to be
    /// so. It does not tell of GPUs that this process may not see, but their memory is not mapped in the first place.
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
            return Err(no_atomics("cuda", own.0, owner.0));
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

    tidegate_gpu::calls! { self.driver;
        free(at: u64, on: Stream) = mem_free_async(DevicePtr(at), stream(on));
        unregister(page: NonNull<c_void>) = mem_host_unregister(page);
        copy_in(to: u64, from: *const u8, bytes: usize, on: Stream) =
            memcpy_htod_async(DevicePtr(to), from.cast(), bytes, stream(on));
        copy_out(to: *mut u8, from: u64, bytes: usize, on: Stream) =
            memcpy_dtoh_async(to.cast(), DevicePtr(from), bytes, stream(on));
        copy(to: u64, from: u64, bytes: usize, on: Stream) =
            memcpy_dtod_async(DevicePtr(to), DevicePtr(from), bytes, stream(on));
        fill(to: u64, byte: u8, bytes: usize, on: Stream) = memset_d8_async(DevicePtr(to), byte, bytes, stream(on));
        stream_destroy(of: Stream) = stream_destroy(stream(of));
        stream_synchronize(of: Stream) = stream_synchronize(stream(of));
        stream_wait_event(on: Stream, awaited: Event) = stream_wait_event(stream(on), event(awaited));
        stream_call(on: Stream, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) =
            launch_host_func(stream(on), function, data);
        event_destroy(of: Event) = event_destroy(event(of));
        event_record(of: Event, on: Stream) = event_record(event(of), stream(on));
        event_record_in_graph(of: Event, on: Stream) = event_record_external(event(of), stream(on));
        capture_begin(on: Stream) = stream_begin_capture(stream(on));
        graph_destroy(of: Graph) = graph_destroy(graph(of));
        graph_upload(of: GraphExec, on: Stream) = graph_upload(exec(of), stream(on));
        graph_launch(of: GraphExec, on: Stream) = graph_launch(exec(of), stream(on));
        graph_exec_destroy(of: GraphExec) = graph_exec_destroy(exec(of));
    }

    unsafe fn alloc(&self, bytes: usize, on: Stream) -> Result<u64> {
        // SAFETY: the pool is never destroyed; the caller promises for the stream.
        let base = unsafe {
            self.driver
                .mem_alloc_from_pool_async(bytes, self.pool, stream(on))
        };
        told(base).map(|base| base.0)
    }

    fn alloc_for_peers(&self, bytes: usize) -> Result<PeerMemory, DeviceError> {
        let what = "allocating memory for peers";
        let (prop, unit) = self.shareable(what)?;
        let size = whole_units(bytes, unit)?;
        let handle = self.driver.mem_create(size, &prop).doing(what)?;
        self.mapping(handle, size)
    }

    fn map_peer(&self, fd: &OwnedFd, bytes: usize) -> Result<PeerMemory, DeviceError> {
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

    unsafe fn export(&self, memory: &PeerMemory) -> Result<OwnedFd, DeviceError> {
        // SAFETY: the caller promises that the memory is not given up yet.
        let fd = unsafe { self.driver.mem_export_fd(MemHandle(memory.memory)) };
        fd.doing("exporting memory")
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

    fn stream_create(&self, priority: Priority) -> Result<Stream> {
        let priority = match priority {
            Priority::High => self.priority,
            _ => 0,
        };
        told(self.driver.stream_create(priority)).map(|made| Stream(made.as_raw().cast()))
    }

    unsafe fn stream_query(&self, of: Stream) -> Result<bool> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.stream_query(stream(of)) })
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

    fn event_create(&self, time: bool) -> Result<Event> {
        let flags = if time {
            EventFlags::DEFAULT
        } else {
            EventFlags::DISABLE_TIMING
        };
        told(self.driver.event_create(flags)).map(|made| Event(made.as_raw().cast()))
    }

    unsafe fn event_query(&self, of: Event) -> Result<bool> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.event_query(event(of)) })
    }

    unsafe fn event_elapsed_ms(&self, from: Event, to: Event) -> Result<Option<f32>> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.event_elapsed_ms(event(from), event(to)) })
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

    fn load(&self, code: &Code<'_>) -> Result<Module, DeviceError> {
        let module = match &Loadable::new(choose(code, self.capability)?)? {
            Loadable::Text(ptx) => self.driver.module_load_ptx(ptx),
            // SAFETY: `Loadable::new` has checked that the image contains everything that its sizes name. The driver
            // checks the contents, as it does with PTX, and executes nothing.
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
        // SAFETY: the caller's promise.
        let made = told(unsafe { self.driver.module_function(self::module(module), name) })?;
        // The function is loaded now, and not behind a wait. If the driver cannot do that, the first launch does.
        // SAFETY: as above.
        let _ = unsafe { self.driver.func_load(made) };
        // Launches may ask for all that a block can have. (The driver's own limit is 48 KiB. If it cannot be lifted, a
        // launch that asks for more fails.)
        // SAFETY: as above.
        let own = told(unsafe { self.driver.func_shared_memory(made) })?;
        // SAFETY: as above.
        let _ = unsafe {
            (self.driver).func_allow_shared_memory(made, self.block_shared.saturating_sub(own))
        };
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

    unsafe fn resident_blocks(&self, of: Function, threads: usize, shared: usize) -> Result<u32> {
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .max_active_blocks_per_multiprocessor(function(of), threads as u32, shared)
        })
    }

    unsafe fn shared_memory(&self, of: Function) -> Result<usize> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.func_shared_memory(function(of)) })
    }

    unsafe fn prefer_shared_memory(&self, of: Function) -> Result<()> {
        // SAFETY: the caller's promise.
        told(unsafe { self.driver.func_prefer_shared_memory(function(of), 100) })
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
            .programmatic_stream_serialization(launch.early)
            .cooperative(launch.together);
        // SAFETY: the caller's promise.
        told(unsafe {
            self.driver
                .launch_kernel_ex(function(of), &config, stream(on), arguments)
        })
    }
}
