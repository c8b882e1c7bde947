//! Sets of bits.

use super::sys;

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident($raw:ty) { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $raw);

        impl $name {
            /// No bit.
            pub const NONE: Self = $name(0);
            $($(#[$bit_doc])* pub const $bit: Self = $name($value);)*

            /// Whether all of `other` is in here.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any of `other` is in here.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                $name(self.0 | other.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut rest = self.0;
                let mut first = true;
                f.write_str(concat!(stringify!($name), "("))?;
                $(if self.0 & $value == $value {
                    rest &= !$value;
                    write!(f, "{}{}", if first { "" } else { " | " }, stringify!($bit))?;
                    first = false;
                })*
                if rest != 0 || first {
                    write!(f, "{}{rest:#x}", if first { "" } else { " | " })?;
                }
                f.write_str(")")
            }
        }
    };
}

flags! {
    /// What a provider can do, or is asked to be able to do (`fi_getinfo(3)`, capabilities).
    Caps(u64) {
        /// Messages.
        MSG = sys::FI_MSG;
        /// Reads and writes of remote memory.
        RMA = sys::FI_RMA;
        /// Messages with tags.
        TAGGED = sys::FI_TAGGED;
        /// Atomic operations on remote memory.
        ATOMIC = sys::FI_ATOMIC;
        /// It can begin reads.
        READ = sys::FI_READ;
        /// It can begin writes.
        WRITE = sys::FI_WRITE;
        /// It can receive messages.
        RECV = sys::FI_RECV;
        /// It can send messages.
        SEND = sys::FI_SEND;
        /// It can be read by others.
        REMOTE_READ = sys::FI_REMOTE_READ;
        /// It can be written by others.
        REMOTE_WRITE = sys::FI_REMOTE_WRITE;
        /// Operations that wait for a counter.
        TRIGGER = sys::FI_TRIGGER;
        /// An operation that waits for all before it.
        FENCE = sys::FI_FENCE;
        /// Memory of devices.
        HMEM = sys::FI_HMEM;
        /// Counters of the target count what others do to its memory.
        RMA_EVENT = sys::FI_RMA_EVENT;
        /// Between processes of one node.
        LOCAL_COMM = sys::FI_LOCAL_COMM;
        /// Between nodes.
        REMOTE_COMM = sys::FI_REMOTE_COMM;
        /// Completions say where a message came from.
        SOURCE = sys::FI_SOURCE;
        /// A receive can name its source.
        DIRECTED_RECV = sys::FI_DIRECTED_RECV;
        /// A buffer for several messages.
        MULTI_RECV = sys::FI_MULTI_RECV;
    }
}

flags! {
    /// What a provider demands of each operation (`fi_getinfo(3)`, mode).
    Mode(u64) {
        /// The context of an operation is memory that the provider may use until the completion.
        CONTEXT = sys::FI_CONTEXT;
        /// Likewise, and of twice the size.
        CONTEXT2 = sys::FI_CONTEXT2;
        /// Room before each message.
        MSG_PREFIX = sys::FI_MSG_PREFIX;
        /// Lists of buffers live until the completion.
        ASYNC_IOV = sys::FI_ASYNC_IOV;
        /// Data for a remote queue takes a posted receive.
        RX_CQ_DATA = sys::FI_RX_CQ_DATA;
    }
}

flags! {
    /// What a provider demands of registered memory (`fi_mr(3)`).
    MrMode(i32) {
        /// The obsolete name for virtual addresses, allocated memory and the provider's keys.
        BASIC = sys::FI_MR_BASIC;
        /// The obsolete name for none of these.
        SCALABLE = sys::FI_MR_SCALABLE;
        /// Local buffers are registered as well, and every operation says which registration.
        LOCAL = sys::FI_MR_LOCAL;
        /// A key is a string of bytes.
        RAW = sys::FI_MR_RAW;
        /// A remote address is the owner's virtual address; else an offset from the region's begin.
        VIRT_ADDR = sys::FI_MR_VIRT_ADDR;
        /// Registered memory has pages behind it.
        ALLOCATED = sys::FI_MR_ALLOCATED;
        /// The provider chooses the key.
        PROV_KEY = sys::FI_MR_PROV_KEY;
        /// The owner says when the pages behind the memory change.
        MMU_NOTIFY = sys::FI_MR_MMU_NOTIFY;
        /// Memory whose changes a counter counts is bound to it before it is enabled.
        RMA_EVENT = sys::FI_MR_RMA_EVENT;
        /// Memory belongs to an endpoint, and not to the domain.
        ENDPOINT = sys::FI_MR_ENDPOINT;
        /// Memory of devices is registered.
        HMEM = sys::FI_MR_HMEM;
    }
}

flags! {
    /// Which operations between the same two endpoints take effect in the order in which they were posted:
    /// `FI_ORDER_XAY` is X after Y.
    Order(u64) {
        /// Read after read.
        RAR = sys::FI_ORDER_RAR;
        /// Read after write.
        RAW = sys::FI_ORDER_RAW;
        /// Read after send.
        RAS = sys::FI_ORDER_RAS;
        /// Write after read.
        WAR = sys::FI_ORDER_WAR;
        /// Write after write: of RMA and atomic operations, in any mixture.
        WAW = sys::FI_ORDER_WAW;
        /// Write after send.
        WAS = sys::FI_ORDER_WAS;
        /// Send after read.
        SAR = sys::FI_ORDER_SAR;
        /// Send after write.
        SAW = sys::FI_ORDER_SAW;
        /// Send after send.
        SAS = sys::FI_ORDER_SAS;
        /// Write after write, among RMA operations.
        RMA_WAW = sys::FI_ORDER_RMA_WAW;
        /// Write after write, among atomic operations.
        ATOMIC_WAW = sys::FI_ORDER_ATOMIC_WAW;
    }
}

flags! {
    /// Flags of one operation.
    OpFlags(u64) {
        /// An entry in the queue, where the endpoint was bound for selective completion.
        COMPLETION = sys::FI_COMPLETION;
        /// The local buffer can be used again when the call returns.
        INJECT = sys::FI_INJECT;
        /// Complete when the local buffer can be used again.
        INJECT_COMPLETE = sys::FI_INJECT_COMPLETE;
        /// Complete when the data has left the reach of local failures.
        TRANSMIT_COMPLETE = sys::FI_TRANSMIT_COMPLETE;
        /// Complete when the data is visible at the target.
        DELIVERY_COMPLETE = sys::FI_DELIVERY_COMPLETE;
        /// The target's queue gets an entry with the data of the operation.
        REMOTE_CQ_DATA = sys::FI_REMOTE_CQ_DATA;
        /// It waits until all before it are complete.
        FENCE = sys::FI_FENCE;
        /// More will follow at once: the provider may wait for that.
        MORE = sys::FI_MORE;
        /// Of a deferred work over cxi: the completion counter is written back.
        CXI_CNTR_WB = sys::FI_CXI_CNTR_WB;
    }
}

flags! {
    /// What registered memory is for.
    Access(u64) {
        /// The local buffer of sends and of what its owner writes elsewhere. (`FI_WRITE` and `FI_SEND`.)
        SOURCE = sys::FI_WRITE | sys::FI_SEND;
        /// The local buffer of receives, and of what its owner reads elsewhere. (`FI_READ` and `FI_RECV`.)
        SINK = sys::FI_READ | sys::FI_RECV;
        /// Others may read it.
        REMOTE_READ = sys::FI_REMOTE_READ;
        /// Others may write it.
        REMOTE_WRITE = sys::FI_REMOTE_WRITE;
    }
}

flags! {
    /// What a counter counts of an endpoint or of memory.
    Counted(u64) {
        /// Reads, by this end.
        READ = sys::FI_READ;
        /// Writes and atomic operations, by this end.
        WRITE = sys::FI_WRITE;
        /// Messages sent.
        SEND = sys::FI_SEND;
        /// Messages received.
        RECV = sys::FI_RECV;
        /// Reads of this end's memory, by others. Needs [`Caps::RMA_EVENT`].
        REMOTE_READ = sys::FI_REMOTE_READ;
        /// Writes and atomic operations on this end's memory, by others. Needs [`Caps::RMA_EVENT`].
        REMOTE_WRITE = sys::FI_REMOTE_WRITE;
    }
}

flags! {
    /// What a queue gets to know of an endpoint.
    Reported(u64) {
        /// What this end began.
        TRANSMIT = sys::FI_TRANSMIT;
        /// What came in.
        RECV = sys::FI_RECV;
        /// Only what is asked for with [`OpFlags::COMPLETION`].
        SELECTIVE = sys::FI_SELECTIVE_COMPLETION;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_says_what_is_in_it() {
        let both = Caps::RMA | Caps(1 << 60);
        assert_eq!(format!("{both:?}"), "Caps(RMA | 0x1000000000000000)");
        assert_eq!(format!("{:?}", Caps::NONE), "Caps(0x0)");
        assert!(both.contains(Caps::RMA) && !both.contains(Caps::RMA | Caps::MSG));
        assert!(both.intersects(Caps::RMA | Caps::MSG));
    }
}
