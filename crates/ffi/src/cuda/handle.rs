//! The driver's objects, as values.

use super::sys;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $raw:ty) => {
        $(#[$doc])*
        ///
        /// A plain value: copying it copies no object, dropping it destroys nothing.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub(crate) $raw);

        // SAFETY: the value is opaque, and nothing here dereferences it. Every thread may call the driver, with handles
        // from any thread. A handle is passed to the driver in an `unsafe` call only, whose contract holds on every
        // thread.
        unsafe impl Send for $name {}
        // SAFETY: as above; a shared reference gives access to the value only.
        unsafe impl Sync for $name {}

        impl $name {
            /// No object.
            pub const NULL: Self = $name(std::ptr::null_mut());

            /// The handle of an object that was made elsewhere.
            pub const fn from_raw(raw: $raw) -> Self {
                $name(raw)
            }

            /// The driver's own value.
            pub const fn as_raw(self) -> $raw {
                self.0
            }

            /// Whether this is [`NULL`](Self::NULL).
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.0)
            }
        }
    };
}

handle!(
    /// A context (`CUcontext`): one device's state in this process.
    Context, sys::CUcontext
);
handle!(
    /// A stream (`CUstream`). [`NULL`](Self::NULL) is the *legacy* stream, which waits for all blocking ones.
    Stream, sys::CUstream
);
handle!(
    /// An event (`CUevent`).
    Event, sys::CUevent
);
handle!(
    /// A graph (`CUgraph`): a recording.
    Graph, sys::CUgraph
);
handle!(
    /// A node of a graph (`CUgraphNode`). It lives as long as its graph.
    GraphNode, sys::CUgraphNode
);
handle!(
    /// An executable graph (`CUgraphExec`).
    GraphExec, sys::CUgraphExec
);
handle!(
    /// Loaded code (`CUmodule`).
    Module, sys::CUmodule
);
handle!(
    /// A kernel of a module (`CUfunction`). It lives as long as its module.
    Function, sys::CUfunction
);
handle!(
    /// A memory pool (`CUmemoryPool`).
    Pool, sys::CUmemoryPool
);

/// A device (`CUdevice`), by its ordinal among the devices that are visible to the process. The driver checks it at
/// every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Device(pub i32);

/// Physical memory (`CUmemGenericAllocationHandle`), which has no address by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MemHandle(pub u64);

/// An address that devices understand (`CUdeviceptr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// No address.
    pub const NULL: Self = DevicePtr(0);

    /// Whether this is [`NULL`](Self::NULL).
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on; `None` if that is beyond the last address.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(DevicePtr)
    }
}

impl std::fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DevicePtr({:#x})", self.0)
    }
}

/// Defines a set of flags: named bits that `|` combines.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$bit_doc])* pub const $bit: Self = $name($value);)*

            /// Whether this has all bits of `other`.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                $name(self.0 | other.0)
            }
        }
    };
}
pub(crate) use flags;
