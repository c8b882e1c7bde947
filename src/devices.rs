//! One module for each device. All of them have the same names, so a program for another device uses another prelude.

/// Defines the names of a device's module, and its prelude.
macro_rules! names {
    ($device:ty, $carry:ident, prelude { $($more:tt)* }) => {
        use crate::generic;

        pub use crate::window::BySlot;
        pub use tidegate_core::Carry;
        #[doc(inline)]
        pub use tidegate_derive::$carry as Carry;

        /// One rank's view of the job, as [`generic::World`] describes it.
        pub type World = generic::World<$device>;
        /// Some ranks of the job, as [`generic::Team`] describes them.
        pub type Team = generic::Team<$device>;
        /// A queue of work with a brand of its own, as [`generic::Stream`] describes it.
        pub type Stream<'s> = generic::Stream<'s, $device>;
        /// The place of a [`Region`] that is at home with the host; see [`generic::OnHost`].
        pub type OnHost = generic::OnHost<$device>;
        /// The place of a [`Region`] that is at home on a stream; see [`generic::On`].
        pub type On<'s> = generic::On<'s, $device>;
        /// A run of elements in memory of the device, as [`generic::Region`] describes it.
        pub type Region<T, P = OnHost> = generic::Region<T, P>;
        /// A part of a region, as [`generic::Part`] describes it.
        pub type Part<T, P = OnHost> = generic::Part<T, P>;
        /// A choice of elements, as [`generic::Layout`] describes it.
        pub type Layout = generic::Layout<$device>;
        /// The target's half of a window, as [`generic::Inbox`] describes it.
        pub type Inbox<'s, T, K = BySlot> = generic::Inbox<'s, T, $device, K>;
        /// The slots of an inbox, as a kernel's argument; see [`generic::InboxView`].
        pub type InboxView<'b, 's, T> = generic::InboxView<'b, 's, T, $device>;
        /// The memory of an inbox by range (or atomic), as a kernel's argument that is read; see [`generic::Memory`].
        pub type Memory<'b, 's, T> = generic::Memory<'b, 's, T, $device>;
        /// The memory of an inbox by range (or atomic), as a kernel's argument that is written; see [`generic::MemoryMut`].
        pub type MemoryMut<'b, 's, T> = generic::MemoryMut<'b, 's, T, $device>;
        /// An inbox that is exposed, as [`generic::Exposed`] describes it.
        pub type Exposed<'s, T, K = BySlot> = generic::Exposed<'s, T, $device, K>;
        /// The origin's half of a window, as [`generic::Outbox`] describes it.
        pub type Outbox<'s, T, K = BySlot> = generic::Outbox<'s, T, $device, K>;
        /// An access epoch, as [`generic::Access`] describes it.
        pub type Access<'s, 'b, T, K = BySlot> = generic::Access<'s, 'b, T, $device, K>;
        /// An access epoch that kernels fill, as [`generic::Opened`] describes it.
        pub type Opened<'s, T, K = BySlot> = generic::Opened<'s, T, $device, K>;
        /// The slots of an open outbox, as a kernel's argument; see [`generic::OpenedSlots`].
        pub type OpenedSlots<'b, 's, T, K = BySlot> = generic::OpenedSlots<'b, 's, T, $device, K>;
        /// The right to complete a target from inside a kernel, as its argument; see [`generic::Last`].
        pub type Last<'b, 's, T, K = BySlot> = generic::Last<'b, 's, T, $device, K>;
        /// The right to complete all targets from inside a kernel, as its argument; see [`generic::LastOfAll`].
        pub type LastOfAll<'b, 's, T, K = BySlot> = generic::LastOfAll<'b, 's, T, $device, K>;
        /// An inbox as the argument of a kernel that makes its epochs; see [`generic::LentInbox`].
        pub type LentInbox<'b, 's, T> = generic::LentInbox<'b, 's, T, $device>;
        /// An outbox as the argument of a kernel that makes its epochs; see [`generic::LentOutbox`].
        pub type LentOutbox<'b, 's, T> = generic::LentOutbox<'b, 's, T, $device>;
        /// A barrier of all ranks, as [`generic::Barrier`] describes it.
        pub type Barrier<'s> = generic::Barrier<'s, $device>;
        /// Blocks of all ranks for all ranks, as [`generic::AllGather`] describes them.
        pub type AllGather<'s, T> = generic::AllGather<'s, T, $device>;
        /// Sums and the like over all ranks, as [`generic::AllReduce`] describes them.
        pub type AllReduce<'s, T> = generic::AllReduce<'s, T, $device>;
        /// A block from each rank to each rank, as [`generic::AllToAll`] describes it.
        pub type AllToAll<'s, T> = generic::AllToAll<'s, T, $device>;
        /// Rows from each rank to each rank, as many as a kernel says; see [`generic::CountedAllToAll`].
        pub type CountedAllToAll<'s, T> = generic::CountedAllToAll<'s, T, $device>;
        /// One rank's vector for all ranks, as [`generic::Broadcast`] describes it.
        pub type Broadcast<'s, T> = generic::Broadcast<'s, T, $device>;
        /// Blocks of all ranks for one rank, as [`generic::Gather`] describes them.
        pub type Gather<'s, T> = generic::Gather<'s, T, $device>;
        /// A sum over all ranks for one rank, as [`generic::Reduce`] describes it.
        pub type Reduce<'s, T> = generic::Reduce<'s, T, $device>;
        /// Blocks of a sum over all ranks, as [`generic::ReduceScatter`] describes them.
        pub type ReduceScatter<'s, T> = generic::ReduceScatter<'s, T, $device>;
        /// Sums over the ranks up to each rank, as [`generic::Scan`] describes them.
        pub type Scan<'s, T> = generic::Scan<'s, T, $device>;
        /// Blocks of one rank for all ranks, as [`generic::Scatter`] describes them.
        pub type Scatter<'s, T> = generic::Scatter<'s, T, $device>;
        /// A recorded step, as [`generic::Graph`] describes it.
        pub type Graph<'s> = generic::Graph<'s, $device>;
        /// A step that was recorded on two streams, as [`generic::PairGraph`] describes it.
        pub type PairGraph<'s, 't> = generic::PairGraph<'s, 't, $device>;

        /// What most programs for this device need.
        pub mod prelude {
            pub use super::{
                Access, AllGather, AllReduce, AllToAll, Barrier, Broadcast, Carry, CountedAllToAll,
                Exposed, Gather, Graph, Inbox, InboxView, Layout, Memory, MemoryMut, On, OnHost, Opened,
                Outbox, PairGraph, Part, Reduce, ReduceScatter, Region, Scan, Scatter, Stream, Team,
                World,
            };
            pub use crate::{
                AllRanges, AllSlots, Atomic, AtomicWindow, Buffers, ByRange, BySlot, Cartesian, Cells, CellsMut, Element,
                Error, Group, In, Init, KernelAccess, KernelExposed, KernelInbox, KernelOutbox, LastRanges, LastSlots, Op, Out, OutRanges, OutSlots, RangeWindow, Result,
                SlotWindow, Slots,
                WorldOptions, exchange, stream,
            };
            #[cfg(feature = "mpi")]
            pub use tidegate_mpi::FromMpi;
            $($more)*
        }
    };
}

pub(crate) use names;
