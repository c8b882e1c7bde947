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
use std::ptr::NonNull;
use std::sync::Arc;

use tidegate_hal::code::Code;
use tidegate_hal::control::Handle;
use tidegate_hal::device::{DeviceError, Priority};
use tidegate_hal::process::Forked;

/// The result of a call of the driver.
pub type Result<T, E = DriverError> = std::result::Result<T, E>;

/// What this crate decides by when a call of the driver has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The process was forked from the one that started the driver, and the call was not made.
    Forked,
    /// There is too little memory, of the device or of the host.
    OutOfMemory,
    /// The driver or the device cannot do this.
    Unsupported,
    /// An argument is not valid.
    Invalid,
    /// The memory is registered with the driver already.
    AlreadyRegistered,
    /// The call is not possible in a capture, or has spoiled it.
    Capture,
    /// The device's work was torn down, and every later call fails.
    ContextLost,
    /// Anything else.
    Other,
}

/// The driver refused a call, or reports an error that happened earlier on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The vendor's name, as in [`Vendor::name`].
    pub device: &'static str,
    /// What to decide by.
    pub kind: ErrorKind,
    /// The call, and what the driver says.
    pub text: String,
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for DriverError {}

impl DriverError {
    /// The hal's error, for a call that was made while doing `what`.
    pub fn doing(self, what: &'static str) -> DeviceError {
        let DriverError { device, kind, text } = self;
        match kind {
            ErrorKind::Forked => DeviceError::Forked(Forked),
            ErrorKind::OutOfMemory => DeviceError::Exhausted {
                what: "memory of the device",
                detail: format!("{what}: {text}"),
            },
            ErrorKind::Unsupported => DeviceError::Unsupported {
                device,
                what: format!("{what}: {text}"),
            },
            _ => DeviceError::System { what, detail: text },
        }
    }
}

/// Adds what was being done when the driver refused.
pub trait Doing<T> {
    /// The result, with the hal's error.
    fn doing(self, what: &'static str) -> Result<T, DeviceError>;
}

impl<T> Doing<T> for Result<T> {
    fn doing(self, what: &'static str) -> Result<T, DeviceError> {
        self.map_err(|error| error.doing(what))
    }
}

/// Something that must live as long as a stream may use it.
pub type Keep = Arc<dyn Any + Send + Sync>;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// A plain value: copying it copies no object, and dropping it destroys nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub *mut c_void);

        // SAFETY: the value is opaque, and nothing here dereferences it. It is passed to the driver in `unsafe` calls
        // only, whose contracts hold on every thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A stream of the driver.
    Stream;
    /// An event.
    Event;
    /// A graph: a recording.
    Graph;
    /// A node of a graph. It lives as long as its graph.
    GraphNode;
    /// An executable graph.
    GraphExec;
    /// Loaded code.
    Module;
    /// A kernel of a module. It lives as long as its module.
    Function;
}

/// Memory that peers can map, or a mapping of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    /// Its address on the device.
    pub base: u64,
    /// How many bytes are mapped.
    pub size: usize,
    /// The driver's number for the memory itself, apart from its address.
    pub memory: u64,
}

/// A launch of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in each direction.
    pub blocks: [u32; 3],
    /// Threads of a block in each direction.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// Whether the kernel may begin before the kernel in front of it is over, when that kernel lets it. Then it waits
    /// by itself for what it needs of that kernel.
    pub early: bool,
}

/// An operation on a word in the order of a stream, for which no kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordOp {
    /// Wait until the 64-bit word is at least the value: until their difference, with a sign, is not negative.
    Wait(u64, u64),
    /// Write a 32-bit word, after everything that the stream did before, and for everyone.
    Write32(u64, u32),
    /// Write a 64-bit word, in the same way.
    Write(u64, u64),
}

/// How a node of a graph follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// When the other is over.
    Over,
    /// Between kernels: when all blocks of the other have let it, or are over ([`Launch::early`]).
    Early,
    /// In a way that this crate does not know.
    Other,
}

/// An edge of a graph: `to` follows `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node that comes first.
    pub from: GraphNode,
    /// The node that follows.
    pub to: GraphNode,
    /// How it follows.
    pub how: Dependency,
}

/// What a kernel node executes.
#[derive(Clone, Copy, Debug)]
pub struct KernelNode {
    /// The kernel.
    pub function: Function,
    /// Where the node keeps its arguments, one address for each parameter; null if the driver has them in another form.
    /// Valid as long as the node, and until its arguments are set.
    pub arguments: *const *const c_void,
}

/// Whether kernels of several processes run on a device at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// They run at the same time, and have room only together.
    Together,
    /// The device gives each process its turn.
    InTurn,
    /// Nobody has seen it, so only one process of a job may use the device.
    Unknown,
}

/// The limits of a device, as this process may use it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The vendor's name, as in [`Vendor::name`].
    pub vendor: &'static str,
    /// The device's name, as the driver gives it.
    pub name: String,
    /// The device's number among those that the process may see.
    pub ordinal: usize,
    /// The device's UUID, which is the same in every process.
    pub uuid: [u8; 16],
    /// How many multiprocessors the process may use.
    pub multiprocessors: usize,
    /// The threads that execute one instruction together.
    pub wave: usize,
    /// Whether a kernel may begin before the kernel in front of it is over ([`Launch::early`]).
    pub dependent_launch: bool,
    /// Whether streams can carry out each [`WordOp`].
    pub word_operations: bool,
    /// How several processes share the device.
    pub sharing: Sharing,
    /// How many launches the device can have resident at a time.
    pub launches: usize,
    /// How many hardware queues the process has. The device's own streams take two of them.
    pub queues: usize,
    /// What a user should know where there are too few queues: which setting says how many there are, and how to get
    /// more.
    pub queue_advice: String,
    /// What a user should know where processes that share the device get too few blocks.
    pub sharing_advice: &'static str,
}

/// A device that a vendor has started.
pub struct Start {
    /// The vendor's driver, for this device.
    pub driver: &'static dyn Driver,
    /// The device's limits.
    pub limits: Limits,
    /// The code of the batch kernel.
    pub code: Code<'static>,
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
pub unsafe trait Driver: Send + Sync {
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
    /// [`DeviceError::BadHandle`] for a handle of something else, [`DeviceError::Unsupported`] if this device cannot
    /// add to words of the peer's device.
    fn map_peer(&self, handle: Handle, bytes: usize) -> Result<PeerMemory, DeviceError>;

    /// A handle by which a peer maps the memory.
    ///
    /// # Safety
    ///
    /// The memory is from [`Driver::alloc_for_peers`], and not given up yet.
    unsafe fn export(&self, memory: &PeerMemory) -> Result<Handle, DeviceError>;

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
    unsafe fn stream_word_ops(&self, stream: Stream, ops: &[WordOp]) -> Result<()>;

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
    unsafe fn graph_nodes(&self, graph: Graph) -> Result<Vec<GraphNode>>;

    /// The edges of a graph, in no particular order.
    ///
    /// # Safety
    ///
    /// As for [`Driver::graph_node_count`].
    unsafe fn graph_edges(&self, graph: Graph) -> Result<Vec<Edge>>;

    /// What a node executes, if it is a kernel.
    ///
    /// # Safety
    ///
    /// The node is one of a graph that is live, and that nobody changes meanwhile.
    unsafe fn graph_kernel(&self, node: GraphNode) -> Result<Option<KernelNode>>;

    /// Gives a kernel node other arguments.
    ///
    /// # Safety
    ///
    /// The node is a kernel of a graph that is live, and that nobody else uses meanwhile. The arguments point to as
    /// many values as the kernel has parameters, of their types. They are copied.
    unsafe fn graph_set_arguments(
        &self,
        node: GraphNode,
        arguments: &mut [*mut c_void],
    ) -> Result<()>;

    /// Adds a copy of another graph's kernel node, which follows nothing yet.
    ///
    /// # Safety
    ///
    /// Both graphs are live, and nobody else uses them meanwhile.
    unsafe fn graph_add_copy(&self, graph: Graph, kernel: GraphNode) -> Result<GraphNode>;

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
    unsafe fn graph_add_edges(&self, graph: Graph, edges: &[Edge]) -> Result<()>;

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
    unsafe fn resident_blocks(&self, function: Function, threads: usize) -> Result<u32>;

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
