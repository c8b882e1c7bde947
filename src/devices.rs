//! One module for each device, with the same names in all of them: a program for another device takes another prelude.

/// Defines the names of a device's module, and its prelude.
macro_rules! names {
    ($device:ty, $carry:ident, prelude { $($more:tt)* }) => {
        use crate::generic;

        pub use crate::window::BySlot;
        pub use tidegate_core::Carry;
        #[doc(inline)]
        pub use tidegate_derive::$carry as Carry;

        /// One rank's view of the job.
        pub type World = generic::World<$device>;
        /// A queue of work with a brand of its own.
        pub type Stream<'s> = generic::Stream<'s, $device>;
        /// The place of a [`Region`] that is at home with the host.
        pub type OnHost = generic::OnHost<$device>;
        /// The place of a [`Region`] that is at home on a stream.
        pub type On<'s> = generic::On<'s, $device>;
        /// A run of elements in memory of the device.
        pub type Region<T, P = OnHost> = generic::Region<T, P>;
        /// A part of a region.
        pub type Part<T, P = OnHost> = generic::Part<T, P>;
        /// A choice of elements.
        pub type Layout = generic::Layout<$device>;
        /// The target's half of a window.
        pub type Inbox<'s, T, K = BySlot> = generic::Inbox<'s, T, $device, K>;
        /// An inbox that is exposed.
        pub type Exposed<'s, T, K = BySlot> = generic::Exposed<'s, T, $device, K>;
        /// The origin's half of a window.
        pub type Outbox<'s, T, K = BySlot> = generic::Outbox<'s, T, $device, K>;
        /// An access epoch.
        pub type Access<'s, 'b, T, K = BySlot> = generic::Access<'s, 'b, T, $device, K>;
        /// A barrier of all ranks.
        pub type Barrier<'s> = generic::Barrier<'s, $device>;
        /// Sums and the like over all ranks.
        pub type AllReduce<'s, T> = generic::AllReduce<'s, T, $device>;
        /// A recorded step.
        pub type Graph<'s> = generic::Graph<'s, $device>;
        /// A step that was recorded on two streams.
        pub type PairGraph<'s, 't> = generic::PairGraph<'s, 't, $device>;

        /// What most programs for this device need.
        pub mod prelude {
            pub use super::{
                Access, AllReduce, Barrier, Carry, Exposed, Graph, Inbox, Layout, On, OnHost,
                Outbox, PairGraph, Part, Region, Stream, World,
            };
            pub use crate::{
                Atomic, AtomicWindow, Buffers, ByRange, BySlot, Element, Error, Group, In, Init, Op,
                Out, RangeWindow, Result, SlotWindow, Slots, exchange, stream,
            };
            #[cfg(feature = "mpi")]
            pub use tidegate_mpi::FromMpi;
            $($more)*
        }
    };
}

pub(crate) use names;
