//! What goes to a driver and comes back from it.

use std::ffi::c_void;

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
    /// Whether all blocks must run at the same time. The caller has made sure that there is room for them. A driver may
    /// refuse the launch if there is not.
    pub together: bool,
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
