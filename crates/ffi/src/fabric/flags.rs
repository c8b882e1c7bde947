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

            /// Whether this has all bits of `other`.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether this has any bit of `other`.
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
    /// What a provider can do, or what a query asks it to be able to do (`fi_getinfo(3)`, capabilities).
    Caps(u64) {
        /// Messages.
        MSG = sys::FI_MSG;
        /// Reads and writes of remote memory.
        RMA = sys::FI_RMA;
        /// Messages with tags.
        TAGGED = sys::FI_TAGGED;
        /// Atomic operations on remote memory.
        ATOMIC = sys::FI_ATOMIC;
        /// This end can begin reads.
        READ = sys::FI_READ;
        /// This end can begin writes.
        WRITE = sys::FI_WRITE;
        /// This end can receive messages.
        RECV = sys::FI_RECV;
        /// This end can send messages.
        SEND = sys::FI_SEND;
        /// Peers can read this end's memory.
        REMOTE_READ = sys::FI_REMOTE_READ;
        /// Peers can write this end's memory.
        REMOTE_WRITE = sys::FI_REMOTE_WRITE;
        /// Operations that wait for a counter.
        TRIGGER = sys::FI_TRIGGER;
        /// Operations that wait for all operations before them.
        FENCE = sys::FI_FENCE;
        /// Memory of devices.
        HMEM = sys::FI_HMEM;
        /// Counters of the target can count the reads and writes of its memory by peers.
        RMA_EVENT = sys::FI_RMA_EVENT;
        /// Communication between processes of one node.
        LOCAL_COMM = sys::FI_LOCAL_COMM;
        /// Communication between nodes.
        REMOTE_COMM = sys::FI_REMOTE_COMM;
        /// A completion names the sender of a message.
        SOURCE = sys::FI_SOURCE;
        /// A receive can name its sender.
        DIRECTED_RECV = sys::FI_DIRECTED_RECV;
        /// One buffer can receive several messages.
        MULTI_RECV = sys::FI_MULTI_RECV;
    }
}

flags! {
    /// What a provider demands of each operation (`fi_getinfo(3)`, mode).
    Mode(u64) {
        /// The context of an operation is memory that the provider may use until the completion.
        CONTEXT = sys::FI_CONTEXT;
        /// As [`CONTEXT`](Self::CONTEXT), with twice the size.
        CONTEXT2 = sys::FI_CONTEXT2;
        /// A message's buffer begins with room for the provider.
        MSG_PREFIX = sys::FI_MSG_PREFIX;
        /// Lists of buffers stay in place until the completion.
        ASYNC_IOV = sys::FI_ASYNC_IOV;
        /// Data for the target's queue uses up a receive that the target has posted.
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
        /// Local buffers must be registered, too, and every operation names the registration.
        LOCAL = sys::FI_MR_LOCAL;
        /// A key is a string of bytes.
        RAW = sys::FI_MR_RAW;
        /// A remote address is the owner's virtual address. Otherwise it is an offset from the beginning of the region.
        VIRT_ADDR = sys::FI_MR_VIRT_ADDR;
        /// Memory must have pages before it is registered.
        ALLOCATED = sys::FI_MR_ALLOCATED;
        /// The provider chooses the key.
        PROV_KEY = sys::FI_MR_PROV_KEY;
        /// The owner tells the provider when the pages of the memory change.
        MMU_NOTIFY = sys::FI_MR_MMU_NOTIFY;
        /// Memory is bound to the counter that counts its changes before the memory is enabled.
        RMA_EVENT = sys::FI_MR_RMA_EVENT;
        /// Memory belongs to an endpoint instead of the domain.
        ENDPOINT = sys::FI_MR_ENDPOINT;
        /// Memory of devices must be registered.
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
        /// The operation gets an entry in the queue, if the endpoint was bound for selective completion.
        COMPLETION = sys::FI_COMPLETION;
        /// The local buffer can be used again when the call returns.
        INJECT = sys::FI_INJECT;
        /// The operation is complete when the local buffer can be used again.
        INJECT_COMPLETE = sys::FI_INJECT_COMPLETE;
        /// The operation is complete when no local failure can lose the data any more.
        TRANSMIT_COMPLETE = sys::FI_TRANSMIT_COMPLETE;
        /// The operation is complete when the data is visible at the target.
        DELIVERY_COMPLETE = sys::FI_DELIVERY_COMPLETE;
        /// The target's queue gets an entry with the data of the operation.
        REMOTE_CQ_DATA = sys::FI_REMOTE_CQ_DATA;
        /// The operation waits until all operations before it are complete.
        FENCE = sys::FI_FENCE;
        /// More operations follow at once, so the provider may wait for those before it begins.
        MORE = sys::FI_MORE;
        /// For a deferred work over cxi: when it is complete, the hardware writes the completion counter to memory.
        CXI_CNTR_WB = sys::FI_CXI_CNTR_WB;
    }
}

flags! {
    /// What registered memory is for.
    Access(u64) {
        /// The local buffer of sends, and of writes to remote memory. (`FI_WRITE` and `FI_SEND`.)
        SOURCE = sys::FI_WRITE | sys::FI_SEND;
        /// The local buffer of receives, and of reads from remote memory. (`FI_READ` and `FI_RECV`.)
        SINK = sys::FI_READ | sys::FI_RECV;
        /// Peers may read it.
        REMOTE_READ = sys::FI_REMOTE_READ;
        /// Peers may write it.
        REMOTE_WRITE = sys::FI_REMOTE_WRITE;
    }
}

flags! {
    /// Which operations of an endpoint, or on memory, a counter counts.
    Counted(u64) {
        /// Reads, by this end.
        READ = sys::FI_READ;
        /// Writes and atomic operations, by this end.
        WRITE = sys::FI_WRITE;
        /// Messages sent.
        SEND = sys::FI_SEND;
        /// Messages received.
        RECV = sys::FI_RECV;
        /// Reads of this end's memory, by peers. Needs [`Caps::RMA_EVENT`].
        REMOTE_READ = sys::FI_REMOTE_READ;
        /// Writes and atomic operations on this end's memory, by peers. Needs [`Caps::RMA_EVENT`].
        REMOTE_WRITE = sys::FI_REMOTE_WRITE;
    }
}

flags! {
    /// Which completions of an endpoint a queue reports.
    Reported(u64) {
        /// Those of operations that this end began.
        TRANSMIT = sys::FI_TRANSMIT;
        /// Those of messages, and of data, that came in.
        RECV = sys::FI_RECV;
        /// Only those of operations with [`OpFlags::COMPLETION`].
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
