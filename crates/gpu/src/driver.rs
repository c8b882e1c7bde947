//! What this crate needs of a vendor: the calls of its driver, and the limits of a device.
//!
//! # Model
//!
//! A [`Driver`] is a vendor's driver as *one device* uses it: it knows its device and its context. Its methods are
//! calls of the driver's interface, one for one where both vendors have the same call. Where they differ, the method
//! is what this crate needs, such as memory that peers can map.
//!
//! Handles are plain values. Copying one copies no object, and dropping one destroys nothing. A [`Driver`] is used as
//! `&'static dyn Driver`: a call of a driver goes through a pointer anyway, and so this crate is compiled once for all
//! vendors.
//!
//! [`Limits`] has what differs between devices as numbers and flags. This crate decides by them, and never asks which
//! vendor it deals with.
//!
//! # Failure
//!
//! A call fails with a [`DriverError`]. Its [`ErrorKind`] is what this crate decides by, and its text is what users
//! read. Errors of kernels that ran earlier are reported by whichever call comes next.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use tidegate_hal::code::Code;
use tidegate_hal::device::{DeviceError, Priority};

pub use limits::{Limits, SharedMemory, Sharing};
pub use tidegate_hal::device::{DriverError, ErrorKind};
pub use values::{
    Dependency, Edge, Event, Function, Graph, GraphExec, GraphNode, KernelNode, Launch, Module,
    PeerMemory, Stream, WordOp,
};

mod limits;
mod values;

/// The result of a call of the driver.
pub type Result<T, E = DriverError> = std::result::Result<T, E>;

/// The result of a call of a vendor's library, with the neutral error.
pub fn told<T>(result: std::result::Result<T, impl Into<DriverError>>) -> Result<T> {
    result.map_err(Into::into)
}

/// The error of a call that a vendor leaves out.
fn off<T>(what: &str) -> Result<T> {
    Err(DriverError {
        device: "GPU",
        kind: ErrorKind::Unsupported,
        text: format!("{what}: not used on GPUs of this vendor"),
    })
}

/// The error if a GPU cannot add to words of another one. Over a link without atomics (PCI Express mostly has none) an
/// add would get lost, and a wait would end too early or never.
pub fn no_atomics(device: &'static str, own: i32, owner: i32) -> DeviceError {
    DeviceError::Unsupported {
        device,
        what: format!(
            "adds from GPU {own} to words of GPU {owner}: the link between them has no atomics (a NIC can reach it: `Route::Nic`)"
        ),
    }
}

/// The size of memory for peers, which is a multiple of the driver's unit.
///
/// # Errors
///
/// [`DeviceError::Exhausted`] if no number is so large.
pub fn whole_units(bytes: usize, unit: usize) -> Result<usize, DeviceError> {
    let size = bytes.checked_next_multiple_of(unit);
    size.ok_or_else(|| DeviceError::Exhausted {
        what: "memory of the device",
        detail: format!("{bytes} bytes"),
    })
}

/// Methods of a [`Driver`] that are one call of the vendor's library: the method with its arguments, and the call.
#[macro_export]
macro_rules! calls {
    ($self:ident.$library:ident; $(
        $(#[$doc:meta])*
        $method:ident($($argument:ident: $type:ty),*) = $call:ident($($given:expr),*);
    )*) => {$(
        $(#[$doc])*
        unsafe fn $method(&$self, $($argument: $type),*) -> $crate::driver::Result<()> {
            // SAFETY: the caller's promise, which is the same for the call.
            $crate::driver::told(unsafe { $self.$library.$call($($given),*) })
        }
    )*};
}

/// Adds what was being done when the driver refused.
pub trait Doing<T> {
    /// The result, with the hal's error.
    fn doing(self, what: &'static str) -> Result<T, DeviceError>;
}

impl<T, E: Into<DriverError>> Doing<T> for Result<T, E> {
    fn doing(self, what: &'static str) -> Result<T, DeviceError> {
        self.map_err(|error| error.into().doing(what))
    }
}

/// Something that must live as long as a stream may use it.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// A device that a vendor has started.
pub struct Start {
    /// The vendor's driver, for this device.
    pub driver: &'static dyn Driver,
    /// The device's limits.
    pub limits: Limits,
    /// The code of the batch kernel.
    pub code: Code<'static>,
    /// The code of the batch kernel for streams that are stamped, and of the kernel that tells the time.
    pub stamped: Code<'static>,
}

/// A vendor of devices.
pub struct Vendor {
    /// Its name in errors: that of its device module.
    pub name: &'static str,
    /// How many devices the process may use.
    pub count: fn() -> Result<usize, DeviceError>,
    /// Starts a device by its number. It is called once for each device.
    pub start: fn(usize) -> Result<Start, DeviceError>,
}

/// The calls of a vendor's driver, for one device.
///
/// A driver without [`Limits::word_operations`] leaves out [`Driver::stream_word_ops`]. The calls that ask for the nodes
/// of graphs, or change them, may be left out, too: then a recording that is replayed several times at once is made of
/// child graphs.
///
/// # Contract of callers
///
/// The methods are `unsafe` where they take a handle, an address, or a function. Unless the method says otherwise:
///
/// - Each handle was made by this driver, and is not destroyed yet. A method that destroys a handle takes it over.
/// - Each range of memory that a copy or a fill names is live, and accessed by nobody else, until the stream has passed
///   the work.
/// - [`Driver::enter`] has been called on the calling thread, and no other driver call changed the thread's context
///   since.
///
/// # Safety
///
/// Each method does what it says, and nothing else. Work of a stream is executed in order. What is true of one
/// [`Driver`] is true on every thread.
pub unsafe trait Driver: Any + Send + Sync {
    /// Makes the device current to the calling thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`] in a forked child.
    fn enter(&self) -> Result<()>;

    /// Allocates memory for this process, in the order of a stream. It is aligned to 256 bytes.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn alloc(&self, bytes: usize, stream: Stream) -> Result<u64>;

    /// Frees memory of [`Driver::alloc`], in the order of a stream.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). Nothing uses the memory later in the order of the stream, nor on
    /// other streams.
    unsafe fn free(&self, at: u64, stream: Stream) -> Result<()>;

    /// Allocates memory that peers can map. Adds and waits on its words are atomic between all devices and processes
    /// that can map it.
    fn alloc_for_peers(&self, bytes: usize) -> Result<PeerMemory, DeviceError>;

    /// Maps a peer's memory of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadHandle`] for a descriptor of something else, [`no_atomics`] if this device cannot add to words
    /// of the peer's device. If the driver does not tell, atomics are taken to work.
    fn map_peer(&self, fd: &OwnedFd, bytes: usize) -> Result<PeerMemory, DeviceError>;

    /// A descriptor by which a peer maps the memory.
    ///
    /// # Safety
    ///
    /// The memory is from [`Driver::alloc_for_peers`], and not given up yet.
    unsafe fn export(&self, memory: &PeerMemory) -> Result<OwnedFd, DeviceError>;

    /// Ends a mapping, and gives the memory up. A peer's mapping keeps it alive. What cannot be given up leaks.
    ///
    /// A driver whose calls would block behind a wait only notes it, and makes them in [`Driver::give_up`].
    ///
    /// # Safety
    ///
    /// The memory is from [`Driver::alloc_for_peers`] or [`Driver::map_peer`], and nothing on this device uses it any
    /// more.
    unsafe fn unmap(&self, memory: PeerMemory);

    /// Whether memory is left that [`Driver::give_up`] may give up.
    fn has_left(&self) -> bool {
        false
    }

    /// Gives up the memory that [`Driver::unmap`] has noted. No stream of the device has work.
    fn give_up(&self) {}

    /// Allocates memory of the host, which has one address for the process's threads and for the device. It is never
    /// freed.
    fn pin(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Registers a page of the process, so that the device can store to it, and returns its address on the device. With
    /// `registers`, it is taken for registers of another device, otherwise for memory.
    ///
    /// # Safety
    ///
    /// The page is mapped until the registration ends, and the device may store to it.
    unsafe fn register(&self, page: NonNull<c_void>, bytes: usize, registers: bool) -> Result<()>;

    /// The address on the device of a registered page.
    ///
    /// # Safety
    ///
    /// The page is registered.
    unsafe fn registered(&self, page: NonNull<c_void>) -> Result<u64>;

    /// Ends a registration. This may block until nothing runs on the device.
    ///
    /// # Safety
    ///
    /// The page is registered, and no work of the device stores to it any more.
    unsafe fn unregister(&self, page: NonNull<c_void>) -> Result<()>;

    /// Whether an address lies in memory of this device, whichever process allocated it. If the driver does not say,
    /// the answer is no.
    fn is_here(&self, at: u64) -> bool;

    /// Copies from the process's memory to the device.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()>;

    /// Stores a byte to memory that the device reaches, at once, even while all other streams wait. A kernel that waits
    /// for the byte sees it soon after this returns.
    ///
    /// `from` points to the byte in memory of [`Driver::pin`]. Nothing waits on `alarm`.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). Others may access the byte meanwhile, atomically.
    unsafe fn poke(&self, to: u64, from: *const u8, alarm: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_in(to, from, 1, alarm) }?;
        // SAFETY: as above.
        unsafe { self.stream_synchronize(alarm) }
    }

    /// Copies from the device to the process's memory.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Copies within the memory that the device can reach, by a copy engine.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Fills memory of the device with a byte.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize, stream: Stream) -> Result<()>;

    /// Makes a stream, which no other stream of the process waits for implicitly.
    fn stream_create(&self, priority: Priority) -> Result<Stream>;

    /// Destroys a stream.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn stream_destroy(&self, stream: Stream) -> Result<()>;

    /// Waits until the stream has passed everything.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn stream_synchronize(&self, stream: Stream) -> Result<()>;

    /// Whether the stream has passed everything.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn stream_query(&self, stream: Stream) -> Result<bool>;

    /// Lets the stream's later work follow an event.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()>;

    /// Carries out operations on words, in their order, as one item. There are at most 256.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). The words are live and aligned when the operations are carried
    /// out. They are not in memory of [`Driver::alloc`].
    unsafe fn stream_word_ops(&self, _stream: Stream, _ops: &[WordOp]) -> Result<()> {
        off("operations of streams on words")
    }

    /// Lets the stream call a function of the host, on a thread of the driver.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). Calling `function` with `data` is sound on another thread. It
    /// does not unwind, and calls nothing of the driver.
    unsafe fn stream_call(
        &self,
        stream: Stream,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<()>;

    /// Makes an event, which has a `time` or has none.
    fn event_create(&self, time: bool) -> Result<Event>;

    /// Destroys an event.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn event_destroy(&self, event: Event) -> Result<()>;

    /// Enqueues an event.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn event_record(&self, event: Event, stream: Stream) -> Result<()>;

    /// In a capture: makes the event a node of the recording, so that each replay sets its time.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). The event lives as long as the recording.
    unsafe fn event_record_in_graph(&self, event: Event, stream: Stream) -> Result<()>;

    /// Whether the stream has come to the event.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn event_query(&self, event: Event) -> Result<bool>;

    /// The milliseconds between two events that have times; `None` while one of them has not happened.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn event_elapsed_ms(&self, from: Event, to: Event) -> Result<Option<f32>>;

    /// Begins to record a stream. Any thread may use the driver meanwhile.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn capture_begin(&self, stream: Stream) -> Result<()>;

    /// Ends a recording.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn capture_end(&self, stream: Stream) -> Result<Graph>;

    /// The nodes that the next recorded item of a stream would follow.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). No other thread records on the stream meanwhile.
    unsafe fn capture_last(&self, stream: Stream) -> Result<Vec<GraphNode>>;

    /// Makes an empty graph.
    fn graph_create(&self) -> Result<Graph>;

    /// Destroys a graph and its nodes. Executable graphs that were made of it stay.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn graph_destroy(&self, graph: Graph) -> Result<()>;

    /// How many nodes a graph has.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). Nobody changes the graph meanwhile.
    unsafe fn graph_node_count(&self, graph: Graph) -> Result<usize>;

    /// The nodes of a graph, in no particular order.
    ///
    /// # Safety
    ///
    /// As for [`Driver::graph_node_count`].
    unsafe fn graph_nodes(&self, _graph: Graph) -> Result<Vec<GraphNode>> {
        off("nodes of graphs")
    }

    /// The edges of a graph, in no particular order.
    ///
    /// # Safety
    ///
    /// As for [`Driver::graph_node_count`].
    unsafe fn graph_edges(&self, _graph: Graph) -> Result<Vec<Edge>> {
        off("edges of graphs")
    }

    /// What a node executes, if it is a kernel.
    ///
    /// # Safety
    ///
    /// The node is one of a graph that is live, and that nobody changes meanwhile.
    unsafe fn graph_kernel(&self, _node: GraphNode) -> Result<Option<KernelNode>> {
        off("kernels of graphs")
    }

    /// Gives a kernel node other arguments.
    ///
    /// # Safety
    ///
    /// The node is a kernel of a graph that is live, and that nobody else uses meanwhile. The arguments point to as
    /// many values as the kernel has parameters, of their types. They are copied.
    unsafe fn graph_set_arguments(
        &self,
        _node: GraphNode,
        _arguments: &mut [*mut c_void],
    ) -> Result<()> {
        off("other arguments of nodes")
    }

    /// Adds a copy of another graph's kernel node, which follows nothing yet.
    ///
    /// # Safety
    ///
    /// Both graphs are live, and nobody else uses them meanwhile.
    unsafe fn graph_add_copy(&self, _graph: Graph, _kernel: GraphNode) -> Result<GraphNode> {
        off("copies of nodes")
    }

    /// Adds edges.
    ///
    /// # Errors
    ///
    /// If the driver refuses, some of the edges may have been added.
    ///
    /// # Safety
    ///
    /// All ends are nodes of the graph, which is live, and which nobody else uses meanwhile. A node behind an edge of
    /// [`Dependency::Early`] is a kernel that waits by itself for what it needs.
    unsafe fn graph_add_edges(&self, _graph: Graph, _edges: &[Edge]) -> Result<()> {
        off("edges of graphs")
    }

    /// Adds a copy of a graph as one node, behind other nodes.
    ///
    /// # Safety
    ///
    /// The graphs are live and different, and nobody else uses them meanwhile; `behind` are nodes of the first.
    unsafe fn graph_add_child(
        &self,
        graph: Graph,
        behind: &[GraphNode],
        child: Graph,
    ) -> Result<GraphNode>;

    /// Makes a graph executable. With `priorities`, its kernels keep the priorities of the streams that they were
    /// recorded on.
    ///
    /// # Safety
    ///
    /// As for [`Driver::graph_node_count`].
    unsafe fn graph_instantiate(&self, graph: Graph, priorities: bool) -> Result<GraphExec>;

    /// Brings an executable graph to the device, so that its first launch takes no longer than the others.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn graph_upload(&self, exec: GraphExec, stream: Stream) -> Result<()>;

    /// Enqueues one execution of a graph. Executions of one graph follow each other.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). All that was recorded may be executed at this point of the
    /// stream.
    unsafe fn graph_launch(&self, exec: GraphExec, stream: Stream) -> Result<()>;

    /// Destroys an executable graph. Executions that are enqueued still end.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn graph_exec_destroy(&self, exec: GraphExec) -> Result<()>;

    /// Loads the form of the code that suits the device. It stays loaded as long as the process lives.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if no form suits the device. [`DeviceError::Code`] for bytes that are no code of
    /// this vendor, that are not complete, or that the driver refuses.
    fn load(&self, code: &Code<'_>) -> Result<Module, DeviceError>;

    /// The kernel of this name, ready to be launched, and the sizes of its parameters in bytes. The sizes are `None` if
    /// neither the driver nor the code says them.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn function(
        &self,
        module: Module,
        name: &CStr,
    ) -> Result<(Function, Option<Vec<usize>>)>;

    /// How many blocks of this many threads a multiprocessor can have at a time.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn resident_blocks(
        &self,
        function: Function,
        threads: usize,
        shared: usize,
    ) -> Result<u32>;

    /// How much shared memory a block of the kernel takes, in bytes, if it is launched without any more.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn shared_memory(&self, function: Function) -> Result<usize>;

    /// Asks for as much [shared memory](SharedMemory) as there can be on each multiprocessor to which blocks of the
    /// kernel come first.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers).
    unsafe fn prefer_shared_memory(&self, function: Function) -> Result<()>;

    /// Enqueues a kernel.
    ///
    /// # Safety
    ///
    /// See the [contract](Driver#contract-of-callers). `arguments` are as many pointers as the kernel has parameters,
    /// each to a value of the parameter's type, which is read before this returns. What the kernel does is sound at
    /// this point of the stream; if it begins early, also beside the kernel in front of it.
    unsafe fn launch(
        &self,
        function: Function,
        launch: &Launch,
        stream: Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<()>;
}
