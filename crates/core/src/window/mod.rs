//! Windows: memory that peers put into, and the epochs in which they do.
//!
//! # Model
//!
//! Each rank declares what it takes part in: a [`SlotWindow`], a [`RangeWindow`] or an [`AtomicWindow`] ([`Window`] has what they share).
//! The declaration returns a *handle* for each slot or range: an [`In`] for memory that others put into, an [`Out`] for
//! memory of others. Then all ranks open the window together. Each gets two halves of it, which are independent of each other:
//!
//! - an [`Inbox`]: the memory that others put into. [`Inbox::post`] exposes it: the result is an [`Exposed`], and nobody
//!   here can touch the memory until [`Exposed::wait`] gives the inbox back.
//! - an [`Outbox`]: the way to others. [`Outbox::start`] opens an [`Access`] epoch, in which puts are noted; [`Access::complete`]
//!   validates them, enqueues them, and gives the outbox back.
//!
//! The k-th post that names an origin belongs to the k-th complete of that origin that names this rank. All of it is
//! enqueued on streams; the host waits for nothing, unless a queue is full: the stream's own, which holds about a
//! thousand items on the host device, or a NIC's. A program with an inbox on one stream and an outbox on another must
//! not enqueue so many epochs on the one before it comes to the other.
//!
//! Which peers are mapped and which are reached by a NIC is decided when the window is created
//! ([`Route`](crate::Route)), and makes no difference to the program.
//!
//! # Disciplines
//!
//! What keeps two origins from writing the same memory is the window's *discipline*:
//!
//! - [`BySlot`]: each inbound slot belongs to one origin and one key; two slots never share memory. Slots are
//!   double-buffered unless told otherwise: an origin may fill one buffer while the target still reads the other, so
//!   that a complete rarely waits for a post.
//! - [`ByRange`]: plain displacements; each origin declares ranges or layouts of its targets' memory, checked to be
//!   disjoint when the window is created. What no origin has declared, the target may use even while its memory is exposed
//!   ([`Exposed::rest`]).
//! - [`Atomic`]: any origin may update any element of its targets, by atomic operations only. Those of one epoch come to
//!   each element in the order in which their origin has noted them (MPI 4.1, section 12.7.2, says so of accumulates).
//!
//! # Nothing
//!
//! Slots, ranges, memory and operations may have no elements. An operation on none does nothing, and its epoch is
//! complete as ever: so a window of empty slots is a way to give signals. Each epoch is one, and the next one waits, as
//! ever, until its target has posted.
//!
//! # Failure
//!
//! A call that takes a token by value, and fails, has lost it. So it revokes the window for all ranks, with
//! [`Cause::NotEnqueued`] and its error in words, and no peer waits for that token in vain. If the window was revoked before, or
//! the stream has failed, that stays the cause. Behind the last epoch nothing is revoked. Each such call has a twin, as
//! [`Inbox::try_post`] is one of [`Inbox::post`]: it has no effect if it fails, and gives the token back. Dropping an [`Exposed`] or an [`Access`] half-done revokes the window for everybody,
//! since the peers' counts would never fit again; forgetting one leaves the peers waiting until they run into their limit.
//!
//! A rank has at most 2^36 - 2^20 epochs with a peer (38 hours of epochs of 2 us). Every call that would begin another one is refused
//! with [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch), and has enqueued nothing. Replays count as many epochs as they have.
//! Ranks that enqueue the same epochs, in the same calls and groups, are refused at the same one. Where the calls differ,
//! one rank may be refused while another waits for it, until its limit: a group is refused if one member is at its end, and
//! a replay if its last epoch is one too many. Drop the window on all ranks, and open it anew.

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
mod exposure;
mod group;
mod half;
mod handle;
mod host;
mod inbox;
mod not_here;
mod note;
mod outbox;
mod plan;
mod programs;
mod refused;
mod rest;
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

pub use access::Access;
pub(crate) use access::check_op;
pub use argument::{InboxView, Memory, MemoryMut};
pub use declare::{AtomicWindow, Buffers, RangeWindow, SlotWindow, Window};
pub use discipline::{Atomic, ByRange, BySlot, Discipline, Kind};
pub use exchange::{Refused, exchange, try_exchange};
pub use group::Group;
use half::{Body, Half, Held, Peer, Typed, Way};
pub use handle::{Dest, In, IntoDest, Out, OutOnce};
pub use inbox::{Exposed, Inbox, Tested};
pub(crate) use not_here::SeenAsItIs;
pub use outbox::Outbox;
use plan::{submit, submit_armed};
pub use rest::{Rest, RestMut};
pub(crate) use rounds::Rounds;
pub use source::{IntoSource, IntoSourceMut, Source, SourceMut};
pub use tidegate_hal::batch::Op;
pub use tidegate_hal::ids::{TeamId, WindowId};
pub use view::{LoweredSlots, Slots};

#[cfg(doc)]
use crate::error::{Cause, Error};
