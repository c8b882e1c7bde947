//! The calls of the HIP runtime.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

use tidegate_ffi::hip::{self, sys};
use tidegate_gpu::driver::{
    Driver, DriverError, ErrorKind, Event, Function, Graph, GraphExec, GraphNode, Launch, Module,
    PeerMemory, Result, Stream, told,
};
use tidegate_hal::code::Code;
use tidegate_hal::device::{DeviceError, Priority};
use tidegate_hal::lock;

use crate::code::CodeObject;

/// The runtime, as one GPU uses it.
pub(crate) struct HipDriver {
    pub(crate) hip: &'static hip::Driver,
    pub(crate) ordinal: i32,
    /// What tells each GPU that the process may see from all others, by their numbers: a UUID, or its place.
    pub(crate) devices: Vec<[u8; 16]>,
    /// The address of the pool for memory of this process (`hipMemPool_t`).
    pub(crate) pool: usize,
    /// A mask with all compute units.
    pub(crate) mask: Vec<u32>,
    /// `gfx942:sramecc+:xnack-`.
    pub(crate) architecture: String,
    /// Whether the runtime has virtual-memory allocations that are not cached.
    pub(crate) whole: bool,
    /// Whether the host reaches the GPU's memory.
    pub(crate) large_bar: bool,
    /// The address of the register by which the host's stores to the GPU's memory are flushed; 0 if there is none.
    pub(crate) flush: usize,
    /// The sizes of kernels' parameters, by the addresses of modules.
    pub(crate) parameters: Mutex<HashMap<usize, HashMap<String, Vec<usize>>>>,
}

/// Makes an object by a call that writes its handle.
pub(crate) fn made<T>(call: impl FnOnce(*mut *mut T) -> hip::Result<()>) -> Result<*mut T> {
    let mut object = null_mut();
    told(call(&mut object)).map(|()| object)
}

/// An address as the runtime takes it.
pub(crate) fn at(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

// SAFETY: each method is one call of the HIP runtime, which does what AMD documents for it, or a few. Those of memory
// for peers are in `peers.rs`. A HIP stream executes in order.
unsafe impl Driver for HipDriver {
    fn enter(&self) -> Result<()> {
        // SAFETY: the call takes a number, and checks it.
        told(unsafe { self.hip.set_device(self.ordinal) })
    }

    tidegate_gpu::calls! { self.hip;
        free(base: u64, on: Stream) = free_async(at(base), on.0.cast());
        unregister(page: NonNull<c_void>) = host_unregister(page.as_ptr());
        copy_in(to: u64, from: *const u8, bytes: usize, on: Stream) =
            memcpy_h_to_d_async(at(to), from.cast(), bytes, on.0.cast());
        copy_out(to: *mut u8, from: u64, bytes: usize, on: Stream) =
            memcpy_d_to_h_async(to.cast(), at(from), bytes, on.0.cast());
        copy(to: u64, from: u64, bytes: usize, on: Stream) =
            memcpy_d_to_d_async(at(to), at(from), bytes, on.0.cast());
        fill(to: u64, byte: u8, bytes: usize, on: Stream) = memset_d8_async(at(to), byte, bytes, on.0.cast());
        stream_destroy(of: Stream) = stream_destroy(of.0.cast());
        stream_synchronize(of: Stream) = stream_synchronize(of.0.cast());
        stream_wait_event(on: Stream, awaited: Event) = stream_wait_event(on.0.cast(), awaited.0.cast(), 0);
        stream_call(on: Stream, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) =
            launch_host_func(on.0.cast(), Some(function), data);
        event_destroy(of: Event) = event_destroy(of.0.cast());
        event_record(of: Event, on: Stream) = event_record(of.0.cast(), on.0.cast());
        event_record_in_graph(of: Event, on: Stream) =
            event_record_with_flags(of.0.cast(), on.0.cast(), sys::hipEventRecordExternal);
        capture_begin(on: Stream) = stream_begin_capture(on.0.cast(), sys::hipStreamCaptureModeRelaxed);
        graph_destroy(of: Graph) = graph_destroy(of.0.cast());
        graph_upload(of: GraphExec, on: Stream) = graph_upload(of.0.cast(), on.0.cast());
        graph_launch(of: GraphExec, on: Stream) = graph_launch(of.0.cast(), on.0.cast());
        graph_exec_destroy(of: GraphExec) = graph_exec_destroy(of.0.cast());
    }

    unsafe fn alloc(&self, bytes: usize, on: Stream) -> Result<u64> {
        let pool = std::ptr::with_exposed_provenance_mut(self.pool);
        // SAFETY: the pool is never destroyed; the caller promises for the stream.
        let call = |base| unsafe {
            self.hip
                .malloc_from_pool_async(base, bytes, pool, on.0.cast())
        };
        made(call).map(|base| base.expose_provenance() as u64)
    }

    fn alloc_for_peers(&self, bytes: usize) -> Result<PeerMemory, DeviceError> {
        self.alloc_shared(bytes)
    }

    fn map_peer(&self, fd: &OwnedFd, bytes: usize) -> Result<PeerMemory, DeviceError> {
        self.map_shared(fd, bytes)
    }

    unsafe fn export(&self, memory: &PeerMemory) -> Result<OwnedFd, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.export_shared(memory) }
    }

    unsafe fn unmap(&self, memory: PeerMemory) {
        // SAFETY: the caller's promise.
        unsafe { self.leave_shared(memory) }
    }

    fn has_left(&self) -> bool {
        self.has_shared_left()
    }

    fn give_up(&self) {
        self.give_shared_up();
    }

    fn pin(&self, bytes: usize) -> Result<NonNull<u8>> {
        let flags =
            sys::hipHostMallocPortable | sys::hipHostMallocMapped | sys::hipHostMallocCoherent;
        // SAFETY: the call writes one address, to one that lives.
        let host = made(|base| unsafe { self.hip.host_malloc(base, bytes, flags) })?;
        // SAFETY: the memory was just allocated; one address is written, to one that lives.
        let device = made(|device| unsafe { self.hip.host_get_device_pointer(device, host, 0) })?;
        NonNull::new(host.cast())
            .filter(|_| device == host)
            .ok_or_else(|| DriverError {
                device: "hip",
                kind: ErrorKind::Unsupported,
                text: format!(
                    "pinned memory has two addresses: {host:p}, and {device:p} on the device"
                ),
            })
    }

    unsafe fn register(&self, page: NonNull<c_void>, bytes: usize, registers: bool) -> Result<()> {
        let flags = if registers {
            sys::hipHostRegisterMapped | sys::hipHostRegisterIoMemory
        } else {
            sys::hipHostRegisterMapped
        };
        // SAFETY: the caller's promise.
        told(unsafe { self.hip.host_register(page.as_ptr(), bytes, flags) })
    }

    unsafe fn registered(&self, page: NonNull<c_void>) -> Result<u64> {
        // SAFETY: the caller's promise; one address is written, to one that lives.
        let call = |device| unsafe { self.hip.host_get_device_pointer(device, page.as_ptr(), 0) };
        made(call).map(|device| device.expose_provenance() as u64)
    }

    fn is_here(&self, address: u64) -> bool {
        let is = |attribute, wanted| self.attribute(address, attribute) == Some(wanted);
        is(
            sys::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE,
            sys::hipMemoryTypeDevice,
        ) && is(
            sys::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            self.ordinal as u32,
        )
    }

    unsafe fn poke(&self, to: u64, from: *const u8, alarm: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.poke_byte(to, from, alarm) }
    }

    /// The stream has a hardware queue of its own, since it has a mask. Others share a few queues, and then work behind
    /// a wait of another stream would wait, too. Such a stream has no priority. The null stream waits for it, so nobody
    /// may use that.
    fn stream_create(&self, _: Priority) -> Result<Stream> {
        let (words, mask) = (self.mask.len() as u32, self.mask.as_ptr());
        // SAFETY: the mask has as many words as it says; one handle is written, to one that lives.
        let call = |made| unsafe { self.hip.ext_stream_create_with_cu_mask(made, words, mask) };
        made(call).map(|made| Stream(made.cast()))
    }

    unsafe fn stream_query(&self, of: Stream) -> Result<bool> {
        // SAFETY: the caller's promise.
        told(hip::Driver::is_done(unsafe {
            self.hip.stream_query(of.0.cast())
        }))
    }

    fn event_create(&self, time: bool) -> Result<Event> {
        let flags = if time {
            sys::hipEventDefault
        } else {
            sys::hipEventDisableTiming
        };
        // SAFETY: one handle is written, to one that lives.
        made(|made| unsafe { self.hip.event_create(made, flags) }).map(|made| Event(made.cast()))
    }

    unsafe fn event_query(&self, of: Event) -> Result<bool> {
        // SAFETY: the caller's promise.
        told(hip::Driver::is_done(unsafe {
            self.hip.event_query(of.0.cast())
        }))
    }

    unsafe fn event_elapsed_ms(&self, from: Event, to: Event) -> Result<Option<f32>> {
        let mut ms = 0.0;
        // SAFETY: the caller's promise; one number is written, to one that lives.
        let asked = unsafe {
            self.hip
                .event_elapsed_time(&mut ms, from.0.cast(), to.0.cast())
        };
        told(hip::Driver::is_done(asked)).map(|done| done.then_some(ms))
    }

    unsafe fn capture_end(&self, on: Stream) -> Result<Graph> {
        // SAFETY: the caller's promise; one handle is written, to one that lives.
        let call = |graph| unsafe { self.hip.stream_end_capture(on.0.cast(), graph) };
        made(call).map(|made| Graph(made.cast()))
    }

    unsafe fn capture_last(&self, on: Stream) -> Result<Vec<GraphNode>> {
        let (mut status, mut id, mut graph) = (0, 0, null_mut());
        let (mut nodes, mut count) = (std::ptr::null(), 0);
        // SAFETY: the caller's promise; each value is written to one that lives.
        told(unsafe {
            self.hip.stream_get_capture_info(
                on.0.cast(),
                &mut status,
                &mut id,
                &mut graph,
                &mut nodes,
                &mut count,
            )
        })?;
        if status != sys::hipStreamCaptureStatusActive || count == 0 || nodes.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: there are so many nodes until the next call on the stream, and none comes in between.
        let nodes = unsafe { std::slice::from_raw_parts(nodes, count) };
        Ok(nodes.iter().map(|node| GraphNode(node.cast())).collect())
    }

    fn graph_create(&self) -> Result<Graph> {
        // SAFETY: one handle is written, to one that lives.
        made(|made| unsafe { self.hip.graph_create(made, 0) }).map(|made| Graph(made.cast()))
    }

    unsafe fn graph_node_count(&self, of: Graph) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the caller's promise. Without an array, only the number is written, to one that lives.
        told(unsafe {
            self.hip
                .graph_get_nodes(of.0.cast(), null_mut(), &mut count)
        })?;
        Ok(count)
    }

    unsafe fn graph_add_child(
        &self,
        of: Graph,
        behind: &[GraphNode],
        child: Graph,
    ) -> Result<GraphNode> {
        let (nodes, count) = (behind.as_ptr().cast(), behind.len());
        // SAFETY: the caller's promise. A node has the layout of the runtime's handle, and there are as many as it
        // says; one handle is written, to one that lives.
        let call = |node| unsafe {
            self.hip
                .graph_add_child_graph_node(node, of.0.cast(), nodes, count, child.0.cast())
        };
        made(call).map(|made| GraphNode(made.cast()))
    }

    unsafe fn graph_instantiate(&self, of: Graph, _priorities: bool) -> Result<GraphExec> {
        // All streams have one priority.
        // SAFETY: the caller's promise; one handle is written, to one that lives.
        let call = |exec| unsafe { self.hip.graph_instantiate(exec, of.0.cast(), 0) };
        made(call).map(|made| GraphExec(made.cast()))
    }

    fn load(&self, code: &Code<'_>) -> Result<Module, DeviceError> {
        let code = CodeObject::choose(code, &self.architecture)?;
        let image = code.words.as_ptr().cast();
        // SAFETY: `CodeObject::choose` has checked that the image contains everything that its headers name. The runtime
        // copies it, and executes nothing. One handle is written, to one that lives.
        let module = made(|module| unsafe { self.hip.module_load_data(module, image) });
        let module = module.map_err(|error| DeviceError::Code(error.to_string()))?;
        lock(&self.parameters).insert(module.addr(), code.kernels);
        Ok(Module(module.cast()))
    }

    unsafe fn function(
        &self,
        module: Module,
        name: &CStr,
    ) -> Result<(Function, Option<Vec<usize>>)> {
        // SAFETY: the caller's promise. The name ends with a NUL; one handle is written, to one that lives.
        let call = |function| unsafe {
            self.hip
                .module_get_function(function, module.0.cast(), name.as_ptr())
        };
        let function = made(call)?;
        let parameters = lock(&self.parameters);
        let kernels = parameters.get(&module.0.addr());
        let sizes = kernels
            .and_then(|kernels| kernels.get(name.to_str().ok()?))
            .cloned();
        Ok((Function(function.cast()), sizes))
    }

    unsafe fn resident_blocks(&self, of: Function, threads: usize, shared: usize) -> Result<u32> {
        let mut blocks = 0;
        // SAFETY: the caller's promise; one int is written, to one that lives.
        told(unsafe {
            self.hip
                .module_occupancy(&mut blocks, of.0.cast(), threads as i32, shared)
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    unsafe fn shared_memory(&self, _: Function) -> Result<usize> {
        // The caller need not count it: a compute unit has a memory of its own for it, of one size.
        Ok(0)
    }

    unsafe fn prefer_shared_memory(&self, _: Function) -> Result<()> {
        Ok(())
    }

    unsafe fn launch(
        &self,
        of: Function,
        launch: &Launch,
        on: Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        // (Blocks that must run together need no launch of another kind. The caller has made sure that there is room for all
        // of them, and each block that has room begins.)
        let ([x, y, z], [a, b, c]) = (launch.blocks, launch.threads);
        let (shared, stream, arguments) = (launch.shared, on.0.cast(), arguments.as_mut_ptr());
        // SAFETY: the caller's promise.
        told(unsafe {
            self.hip.module_launch_kernel(
                of.0.cast(),
                x,
                y,
                z,
                a,
                b,
                c,
                shared,
                stream,
                arguments,
                null_mut(),
            )
        })
    }
}
