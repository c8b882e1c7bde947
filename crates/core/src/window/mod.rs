//! Windows: memory that peers put into, and the epochs in which they do.
//!
//! # Model
//!
//! A window is created by all ranks together ([`Window`]). Each rank gets two halves of it, which are independent of each other:
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
//! - [`ByRange`]: plain displacements; each origin declares ranges of its targets' memory, checked to be disjoint when
//!   the window is created.
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
//! Errors of a call give its token back. Dropping an [`Exposed`] or an [`Access`] half-done revokes the window for everybody,
//! since the peers' counts would never fit again; forgetting one leaves the peers waiting until they run into their limit.
//!
//! A rank has at most 2^36 - 2^20 epochs with a peer (38 hours of epochs of 2 us). Every call that would begin another one is refused
//! with [`Error::LastEpoch`], and has enqueued nothing. Replays count as many epochs as they have.
//! Ranks that enqueue the same epochs, in the same calls and groups, are refused at the same one. Where the calls differ,
//! one rank may be refused while another waits for it, until its limit: a group is refused if one member is at its end, and
//! a replay if its last epoch is one too many. Drop the window on all ranks, and open it anew.

mod access;
mod argument;
mod builder;
mod check;
mod describe;
mod edge;
mod edges;
mod exchange;
mod inbox;
mod note;
mod outbox;
mod plan;
mod programs;
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

pub(crate) use access::check_op;
pub use access::{Access, At, Dest, IntoDest, OutSlot, Slot};
pub use argument::{InboxView, Memory, MemoryMut};
pub use builder::{Buffers, Window};
pub use exchange::{Refused, exchange};
pub use inbox::{Exposed, Inbox, Tested};
pub use outbox::Outbox;
pub(crate) use rounds::Rounds;
pub use source::{IntoSource, IntoSourceMut, Source, SourceMut};
use through::Reach;
pub use tidegate_hal::batch::Op;
pub use view::{LoweredSlots, Slots};

use std::sync::Arc;

use tidegate_hal::batch::{Batch, Landed};
use tidegate_hal::device::{Device, Fault, Reclaim};
use tidegate_hal::memory::Ptr;

use crate::epochs::Epochs;
use crate::error::{Cause, Error, Result};
use crate::ground::{ReclaimOf, fresh_id};
use crate::myself::Myself;
use crate::nic::Line;
use crate::side::Side;
use crate::stream::{Arm, Stream, armed};
use crate::world::{Watched, World};

/// How a window keeps origins apart. Sealed.
pub trait Discipline: sealed::Sealed + Send + 'static {
    #[doc(hidden)]
    const KIND: Kind;
}

/// One slot an origin (and key), disjoint by construction.
pub struct BySlot;

/// Ranges of displacements, declared by the origins and checked to be disjoint.
pub struct ByRange;

/// Any displacement, atomic operations only: each origin's in the order in which it notes them.
pub struct Atomic;

/// A discipline at run time.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    Slot,
    Range,
    Atomic,
}

impl Discipline for BySlot {
    const KIND: Kind = Kind::Slot;
}
impl Discipline for ByRange {
    const KIND: Kind = Kind::Range;
}
impl Discipline for Atomic {
    const KIND: Kind = Kind::Atomic;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::BySlot {}
    impl Sealed for super::ByRange {}
    impl Sealed for super::Atomic {}
}

/// A set of ranks, for posts and starts that name only some of the neighbours.
#[derive(Clone, Debug)]
pub struct Group {
    ranks: Arc<[usize]>,
    id: u64,
}

impl Group {
    /// The group of these ranks; order and repetition do not matter.
    pub fn new(ranks: impl IntoIterator<Item = usize>) -> Self {
        let mut ranks: Vec<_> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        Group {
            ranks: ranks.into(),
            id: fresh_id(),
        }
    }

    /// The ranks, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}

/// A peer as one half of a window sees it.
struct Peer {
    rank: usize,
    /// The word that this rank waits on for the peer, with the operand beside it.
    word: Ptr,
    operand: Ptr,
    /// The operand of the wait for a buffer of staging, if the peer is far.
    buffers: Ptr,
    /// Of an origin, where what it puts may be found before its word has come.
    landed: Option<Landed>,
    way: Way,
}

/// How this rank's streams reach a peer.
enum Way {
    /// They add to the peer's word themselves, and ring its bell.
    Mapped { word: Ptr, bell: Ptr },
    /// They ring for a program of the NIC.
    Nic(Arc<Line>),
}

impl Drop for Way {
    fn drop(&mut self) {
        // Regions may hold the line still, for what is under way.
        if let Way::Nic(line) = self {
            line.end();
        }
    }
}

impl Peer {
    /// The way by the NIC, if that is it.
    fn line(&self) -> Option<&Arc<Line>> {
        match &self.way {
            Way::Mapped { .. } => None,
            Way::Nic(line) => Some(line),
        }
    }
}

/// What the tokens of a half are typed by.
type Typed<'s, T, K> = std::marker::PhantomData<(crate::place::Brand<'s>, fn(T, K) -> T)>;

/// What both halves have, and what must outlive all work of the stream with them.
struct Half<D: Device> {
    id: u64,
    home: Arc<ReclaimOf<D>>,
    world: World<D>,
    window: Arc<Watched<D>>,
    /// The windows' blocks of all ranks that this one exchanges with.
    _blocks: Arc<Vec<Option<D::Block>>>,
    /// Lets peers reach this rank's block through the NIC.
    _reach: Arc<Reach<D>>,
    /// Ascending.
    peers: Vec<Peer>,
    /// What both halves know of each other, if this rank is its own peer.
    myself: Option<Arc<Myself<D>>>,
    epochs: Arc<Epochs>,
}

impl<D: Device> Half<D> {
    fn ready(&self, stream: &Stream<'_, D>) -> Result<()> {
        self.window.usable()?;
        stream.healthy()
    }

    /// A token of an open epoch is being dropped: `token` says which, and before what.
    fn revoke(&self, token: &str) {
        if !self.world.process().is_this() {
            return;
        }
        let (rank, token) = (self.world.rank(), token.to_owned());
        let cause = match self.home.fault() {
            // It is dropped because it cannot be closed any more: whoever asks is to hear what came first.
            Some(Fault::Wait { tag, .. }) => self.world.cause_of(tag),
            Some(fault @ Fault::Kernel(_)) => self.world.cause_of_kernel(&fault),
            // Nobody has dropped it on purpose.
            _ if std::thread::panicking() => Cause::Panicked { rank, token },
            _ => Cause::Dropped { rank, token },
        };
        self.world.revoke(&self.window, cause);
    }

    /// The indices of a group's ranks among the peers.
    fn members(&self, group: &Group, role: &'static str) -> Result<Vec<usize>> {
        group
            .ranks()
            .iter()
            .map(|rank| {
                self.world.check_rank(*rank)?;
                self.peers
                    .binary_search_by_key(rank, |peer| peer.rank)
                    .map_err(|_| Error::NotInGroup {
                        window: self.window.name.clone(),
                        rank: *rank,
                        role,
                    })
            })
            .collect()
    }
}

/// Owns the body of a half; gives it to the stream's reclaimer when dropped.
struct Held<B: Body>(Option<Box<B>>);

/// The body of a half.
trait Body: Send + 'static {
    type Device: Device;
    const SIDE: Side;
    fn half(&self) -> &Half<Self::Device>;
}

impl<B: Body> Held<B> {
    fn new(body: B) -> Self {
        Held(Some(Box::new(body)))
    }

    /// Moves the body out, to another token.
    fn take(&mut self) -> Held<B> {
        Held(self.0.take())
    }

    /// Whether the body has been moved out.
    fn is_taken(&self) -> bool {
        self.0.is_none()
    }
}

impl<B: Body> std::ops::Deref for Held<B> {
    type Target = B;
    fn deref(&self) -> &B {
        self.0
            .as_ref()
            .expect("only a token that is being dropped has no body")
    }
}

impl<B: Body> std::ops::DerefMut for Held<B> {
    fn deref_mut(&mut self) -> &mut B {
        self.0
            .as_mut()
            .expect("only a token that is being dropped has no body")
    }
}

impl<B: Body> Drop for Held<B> {
    fn drop(&mut self) {
        // Batches and kernels in the queue point into the window's memory and tables.
        if let Some(body) = self.0.take() {
            if !body.half().world.process().is_this() {
                return std::mem::forget(body);
            }
            let half = body.half();
            let home = half.home.clone();
            half.world.drops(half.window.id, &[B::SIDE]);
            if let Some(myself) = &half.myself {
                myself.dropped(B::SIDE, &home);
            }
            home.retire(body);
        }
    }
}

/// Submits a batch of window halves that rings for what the NIC is to be armed with.
#[inline]
fn submit_armed<D: Device>(
    stream: &Stream<'_, D>,
    arms: &[&[Arm<D>]],
    batch: &Arc<Batch>,
) -> Result<()> {
    armed(stream, arms, batch, || submit(stream, batch))
}

/// Submits a batch of a window half.
fn submit<D: Device>(stream: &Stream<'_, D>, batch: &Arc<Batch>) -> Result<()> {
    use tidegate_hal::device::Stream as _;
    // SAFETY: the batches of a half are made in this module: words, bells and peers' memory lie in blocks that the half holds and
    // that are retired in stream order; sources and results are regions of this stream, which are too; index tables are kept
    // by the batch; epochs order the accesses of other ranks, and slots, ranges or atomicity keep origins apart.
    unsafe { stream.raw().submit(batch) }?;
    Ok(())
}
