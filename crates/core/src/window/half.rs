//! The state that both halves of a window have.

use std::fmt;
use std::sync::Arc;

use tidegate_hal::batch::{Landed, Ring, Side};
use tidegate_hal::device::{Device, Reclaim};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::Keep;
use tidegate_hal::process::memory::Readable;

use super::through::Reach;
use crate::epochs::Epochs;
use crate::error::{Cause, Result};
use crate::ground::ReclaimOf;
use crate::half_kind::HalfKind;
use crate::myself::Myself;
use crate::nic::NicLine;
use crate::place::Brand;
use crate::stake::Stake;
use crate::stream::Stream;
use crate::world::{Roster, Watched, World};

/// A peer as one half of a window sees it.
pub(super) struct Peer {
    pub(super) rank: usize,
    /// The word that this rank waits on for the peer. The operand lies beside it.
    pub(super) word: Ptr,
    pub(super) operand: Ptr,
    /// The operand of the wait for a staging buffer, if the peer is far.
    pub(super) buffers: Ptr,
    /// The operand of the wait for the end of the last firing, if the peer is a far target by range.
    pub(super) fired: Option<Ptr>,
    /// If the peer is an origin: where its data may land before its word has come.
    pub(super) landed: Option<Landed>,
    /// If slots between the two ranks are a ring: at this rank if the peer is an origin, and at the peer if it is a target.
    pub(super) ring: Option<Ring>,
    /// If data between the two ranks are [pulled](super::pull): the origin's process, which is this one if the peer is a
    /// target.
    pub(super) reads: Option<Readable>,
    /// If the peer is an origin by range, and data is staged: the elements that it accesses.
    pub(super) ranges: Vec<PeerRange>,
    pub(super) link: Link,
}

/// Elements of this rank that a far origin accesses.
pub(super) struct PeerRange {
    pub(super) near: Side,
    /// The copy of them that NICs access, in their order, without gaps.
    pub(super) copy: Ptr,
    pub(super) count: usize,
    /// The table of a layout.
    pub(super) keep: Option<Keep>,
}

/// How this rank's streams reach a peer.
pub(super) enum Link {
    /// The stream adds to the peer's word and rings its bell.
    Mapped { word: Ptr, bell: Ptr },
    /// The stream rings for a program of the NIC.
    Nic(Arc<NicLine>),
}

impl Drop for Link {
    fn drop(&mut self) {
        // Regions may still hold the line, for operations of the NIC that have not ended.
        if let Link::Nic(line) = self {
            line.end();
        }
    }
}

impl Peer {
    /// The line, if the NIC reaches the peer.
    pub(super) fn line(&self) -> Option<&Arc<NicLine>> {
        match &self.link {
            Link::Mapped { .. } => None,
            Link::Nic(line) => Some(line),
        }
    }
}

/// The type parameters of a half's tokens.
pub(super) type Typed<'s, T, K> = std::marker::PhantomData<(Brand<'s>, fn(T, K) -> T)>;

/// The state of a half. It must outlive all work of the stream that uses the half.
pub(super) struct Half<D: Device> {
    pub(super) id: u64,
    /// The number of the window's declaration, which its handles contain.
    pub(super) declaration: u64,
    pub(super) home: Arc<ReclaimOf<D>>,
    pub(super) world: World<D>,
    /// The team that has opened the window.
    pub(super) roster: Arc<Roster>,
    pub(super) window: Arc<Watched<D>>,
    /// This window's blocks of the neighbours that are mapped.
    pub(super) _blocks: Arc<Vec<D::Block>>,
    /// Lets peers reach this rank's block through the NIC.
    pub(super) _reach: Arc<Reach<D>>,
    /// In ascending order.
    pub(super) peers: Vec<Peer>,
    /// What both halves know of each other, if this rank is its own peer.
    pub(super) myself: Option<Arc<Myself<D>>>,
    pub(super) epochs: Arc<Epochs>,
}

impl<D: Device> Half<D> {
    /// The index of a rank among the peers, for which the window was declared.
    pub(super) fn peer_of(&self, rank: usize) -> usize {
        let index = self.peers.binary_search_by_key(&rank, |peer| peer.rank);
        index.expect("the window was declared for these ranks")
    }

    pub(super) fn ready(&self, stream: &Stream<'_, D>) -> Result<()> {
        self.window.usable()?;
        stream.healthy()
    }

    /// Revokes the window, because a token of an open epoch is being dropped. `token` names it, and the call that
    /// should have taken it.
    pub(super) fn revoke(&self, token: &str) {
        self.stake(true).revoke(|rank| {
            let token = token.to_owned();
            match std::thread::panicking() {
                // The token was not dropped on purpose.
                true => Cause::Panicked { rank, token },
                false => Cause::Dropped { rank, token },
            }
        });
    }

    /// What peers may wait for from this half. `open` says whether it is in an epoch, for which they may wait.
    pub(super) fn stake(&self, open: bool) -> Stake<D> {
        let awaited = open || !self.peers.is_empty() && !self.epochs.are_over(None);
        Stake::new(&self.world, &self.window, &self.home, awaited)
    }

    /// The numbers of the peers in the team, in ascending order.
    pub(super) fn peer_ranks(&self) -> impl Iterator<Item = usize> + use<D> {
        let peers = self.peers.iter().map(|peer| peer.rank);
        self.roster.in_team(peers).into_iter()
    }
}

/// Owns the body of a half. When it is dropped, the stream's reclaimer gets the body.
pub(super) struct Held<B: HalfBody>(Option<Box<B>>);

/// The body of a half, which its tokens hand on.
pub(super) trait HalfBody: Send + 'static {
    type Device: Device;
    const KIND: HalfKind;
    fn half(&self) -> &Half<Self::Device>;
}

impl<B: HalfBody> Held<B> {
    pub(super) fn new(body: B) -> Self {
        Held(Some(Box::new(body)))
    }

    /// The `Debug` text of a token of elements `T`: its window, its rank, and its peers.
    pub(super) fn debug<T>(&self, token: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = self.half();
        let peers: Vec<_> = half.peers.iter().map(|peer| peer.rank).collect();
        f.debug_struct(token)
            .field("window", &half.window.name)
            .field("id", &half.window.id)
            .field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("device", &<B::Device as Device>::NAME)
            .field("rank", &half.world.rank())
            .field("peers", &peers)
            .finish_non_exhaustive()
    }

    /// Moves the body to another token.
    pub(super) fn take(&mut self) -> Held<B> {
        Held(self.0.take())
    }

    /// Whether the body has been moved out.
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_none()
    }
}

impl<B: HalfBody> std::ops::Deref for Held<B> {
    type Target = B;
    fn deref(&self) -> &B {
        self.0
            .as_ref()
            .expect("only a token that is being dropped has no body")
    }
}

impl<B: HalfBody> std::ops::DerefMut for Held<B> {
    fn deref_mut(&mut self) -> &mut B {
        self.0
            .as_mut()
            .expect("only a token that is being dropped has no body")
    }
}

impl<B: HalfBody> Drop for Held<B> {
    fn drop(&mut self) {
        // Batches and kernels in the queue point into the window's memory and tables.
        if let Some(body) = self.0.take() {
            if !body.half().world.process().is_this() {
                return std::mem::forget(body);
            }
            let half = body.half();
            let home = half.home.clone();
            half.world.drops(half.window.id, &[B::KIND]);
            if let Some(myself) = &half.myself {
                myself.dropped(B::KIND, &home);
            }
            home.retire(body);
        }
    }
}
