//! Windows: memory that other ranks put into, and the epochs in which they do so.
//!
//! # Model
//!
//! Each rank declares its part of the window: a [`SlotWindow`], a [`RangeWindow`] or an [`AtomicWindow`]. ([`Window`]
//! documents what they have in common.) The declaration returns a *handle* for each slot or range: an [`In`] for memory
//! that others put into, an [`Out`] for memory of others. Then all ranks open the window together. Each rank gets two
//! halves, which it can use independently:
//!
//! - The [`Inbox`] is the memory that others put into. [`Inbox::post`] exposes it and returns an [`Exposed`]. This rank
//!   cannot touch the memory until [`Exposed::wait`] returns the inbox.
//! - The [`Outbox`] leads to the memory of others. [`Outbox::start`] opens an [`Access`] epoch, which notes puts.
//!   [`Access::complete`] validates them, enqueues them, and returns the outbox.
//!
//! The k-th post that names an origin belongs to the k-th complete of that origin that names this rank. All of these
//! calls enqueue, and the host does not wait, unless a queue is full: the
//! [stream's](mod@crate::stream#how-far-the-host-may-run-ahead), or a NIC's. A program that has the inbox on one stream
//! and the outbox on another must not fill the queue of one before it enqueues on the other.
//!
//! When the window is opened, tidegate decides which peers are mapped and which are reached by a NIC
//! ([`Route`](crate::Route)). The program is the same for both.
//!
//! # Disciplines
//!
//! The *discipline* of a window keeps two origins from writing the same memory:
//!
//! - [`BySlot`]: each inbound slot belongs to one origin and one key; two slots never share memory. A slot has two
//!   buffers unless the program asks for one. An origin may fill one buffer while the target still reads the other, so
//!   a complete rarely waits for a post.
//! - [`ByRange`]: plain memory. Each origin declares ranges or layouts of its targets' memory, and [`Window::open`]
//!   checks that they are disjoint. The target may use elements that no origin has declared even while its memory is
//!   exposed ([`Exposed::rest`]).
//! - [`Atomic`]: any origin may update any element of its targets, but only by atomic operations. Each element sees the
//!   operations of one origin's epoch in the order in which the origin noted them (like accumulates in MPI 4.1, section
//!   12.7.2).
//!
//! # Windows without data
//!
//! Slots, ranges, memory and operations may have no elements. An operation on no elements does nothing, and its epoch
//! completes as usual. So a window of empty slots can send signals: each epoch is one signal, and the next epoch waits,
//! as usual, until its target has posted.
//!
//! # Failure
//!
//! A call that takes a token by value loses it when it fails, and a peer could wait for that token for ever. So the
//! call revokes the window on all ranks, with [`Cause::NotEnqueued`] and the text of its error. If the window was
//! revoked before, or the stream had failed, that remains the cause. After a window's last epoch (below) nothing is
//! revoked. Each such call has a twin whose name begins with `try_`, such as [`Inbox::post`] and [`Inbox::try_post`].
//! The twin has no effect if it fails, and returns the token. (A capture whose step fails cannot return what the step has
//! taken.)
//!
//! Dropping an [`Exposed`], an [`Access`] or an [`Opened`] in the middle of its epoch revokes the window on all ranks,
//! since the ranks' counters would never agree again. After `std::mem::forget` the peers wait until the limit of the
//! window, if it has one.
//!
//! In a child that `fork` made of the process, each call on a stream fails with [`Error::Forked`]. The parent is not
//! affected.
//!
//! A rank has at most 2^36 - 2^20 epochs with a peer (38 hours of epochs of 2 us). A call that would begin one more
//! fails with [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch), and enqueues nothing. A replay counts all
//! epochs that it contains. Ranks that enqueue the same epochs, in the same calls and groups, are refused at the same
//! epoch. If their calls differ, one rank may be refused while another waits for it until the limit. A group is refused
//! if one of its members has had its last epoch, and a replay is refused if it contains one epoch too many. Then drop
//! the window on all ranks, and open a new one.

mod access;
mod argument;
mod atomics;
mod builder;
mod check;
mod cuts;
mod declare;
mod describe;
mod discipline;
mod edge;
mod edges;
mod exchange;
mod exchange_opened;
mod exposure;
mod fill;
mod fill_all;
mod fill_ranges;
mod grants;
mod group;
mod half;
mod handle;
mod host;
mod inbox;
mod joint;
mod lend;
mod lent;
mod meeting;
mod not_here;
mod note;
mod one_lane;
mod opened;
mod orders;
mod outbox;
mod plan;
mod programs;
mod pull;
mod refused;
mod rest;
mod ring;
mod round;
mod round_plan;
mod rounds;
mod routes;
mod shape;
mod source;
mod stages;
mod start;
#[cfg(test)]
mod tests;
mod through;
mod view;
mod wait;
mod within;

pub use access::Access;
pub use argument::{InboxView, Memory, MemoryMut};
pub use declare::{AtomicWindow, Buffers, RangeWindow, SlotWindow, Window};
pub use discipline::{Atomic, ByRange, BySlot, Discipline, Fillable, Kind};
pub use exchange::{Refused, exchange, try_exchange};
pub use fill::{LastSlots, LoweredLast, LoweredOut, OutSlots};
pub use fill_all::{AllSlots, LastOfAll, LoweredAll};
pub use fill_ranges::{AllRanges, LastRanges, OutRanges};
pub use group::Group;
use half::{Half, HalfBody, Held, Link, Peer, Typed};
pub use handle::{Dest, In, IntoDest, Out, OutOnce};
pub use inbox::{Exposed, Inbox};
pub(crate) use joint::{Joint, JointKind, hash_of};
pub use lend::{LentInbox, LentOutbox};
pub(crate) use not_here::SeenAsItIs;
pub use opened::{Last, Opened, OpenedSlots};
pub use outbox::Outbox;
use plan::{submit, submit_armed};
pub use rest::{Rest, RestMut};
pub(crate) use round::Round;
pub(crate) use round_plan::{
    LocalAction, LocalMove, Origin, Put, Putting, Receive, RoundPlan, Run,
};
pub(crate) use rounds::Rounds;
pub use source::{IntoSource, IntoSourceMut, Source, SourceMut};
pub use tidegate_hal::batch::Op;
pub use tidegate_hal::ids::{TeamId, WindowId};
pub use view::{LoweredSlots, Slots};
pub use wait::Tested;
pub use within::{
    KernelAccess, KernelExposed, KernelInbox, KernelOutbox, LoweredInbox, LoweredOutbox,
};

#[cfg(doc)]
use crate::error::{Cause, Error};
