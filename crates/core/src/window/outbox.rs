//! The origin's half of a window.

use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_hal::device::Device;
use tidegate_hal::ids::WindowId;
use tidegate_hal::site::CallSite;

use super::Typed;
use super::discipline::BySlot;
use super::edge::{Edge, Touched};
use super::grants::Grants;
use super::group::Groups;
use super::handle::Out;
use super::lent::Lent;
use super::plan::Plans;
use super::{Discipline, Half, HalfBody, Held, Link};
use crate::carry::{Carry, Visitor};
use crate::element::{Element, LARGEST};
use crate::error::{Error, Result};
use crate::half_kind::HalfKind;
use crate::myself::Myself;
use crate::nic::{NicLine, Tickets, Touch};
use crate::stream::{Stream, settle_all};

/// The origin's half of a window, which leads to the memory of other ranks. It is at home on stream `'s`.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// epoch.put(&src, to)?;
/// let (_inbox, outbox) = exchange(s, inbox, epoch)?;
/// assert!(outbox.targets().eq([1 - s.world().rank()]));
/// # Ok(()) });
/// ```
#[must_use = "a dropped outbox completes no more epochs: a target that waits for the next complete waits for ever"]
pub struct Outbox<'s, T, D: Device, K: Discipline = BySlot> {
    pub(super) held: Held<OutboxBody<D>>,
    marker: Typed<'s, T, K>,
}

pub(super) struct OutboxBody<D: Device> {
    pub(super) half: Half<D>,
    pub(super) edges: Box<[Edge]>,
    pub(super) plans: Plans<D>,
    /// The targets. The current ones are those of the epoch.
    pub(super) groups: Groups<()>,
    /// The number of the epoch, from 1. A handle that was taken for this epoch is refused in any other.
    pub(super) epoch: u64,
    /// The regions of the open epoch that a NIC reads or writes.
    pub(super) touched: Vec<Touched>,
    /// The error of the last operation of the open epoch that was refused.
    pub(super) refused: Option<Box<str>>,
    /// What kernels need to put by themselves, once an epoch was opened for them.
    pub(super) grants: Option<Box<Grants<D>>>,
    /// What kernels need to make epochs, once the outbox was lent to one.
    pub(super) lent: Option<Lent<D>>,
    /// The index of the peer that is this rank itself.
    myself: Option<usize>,
}

impl<D: Device> HalfBody for OutboxBody<D> {
    type Device = D;
    const KIND: HalfKind = HalfKind::Outbox;
    fn half(&self) -> &Half<D> {
        &self.half
    }
}

impl<D: Device> OutboxBody<D> {
    pub(super) fn new(half: Half<D>, edges: Box<[Edge]>) -> Self {
        let all = (0..half.peers.len()).collect();
        let myself = half
            .peers
            .iter()
            .position(|peer| peer.rank == half.world.rank());
        OutboxBody {
            half,
            edges,
            plans: Plans::new(),
            groups: Groups::new(all, ()),
            epoch: 0,
            touched: Vec::new(),
            refused: None,
            grants: None,
            lent: None,
            myself,
        }
    }

    /// Opens an epoch of the current group.
    pub(super) fn begin(&mut self) {
        self.plans.begin(self.groups.current().id);
        self.epoch += 1;
        self.touched.clear();
        self.refused = None;
    }

    /// Keeps the error of an operation that was refused. If the program drops the epoch because of it, the peers are
    /// told.
    #[cold]
    pub(super) fn refuse(&mut self, error: Error) -> Error {
        self.refused = Some(error.to_string().into());
        error
    }

    /// Notes a region that has tickets, or will have them when the epoch is complete.
    #[cold]
    pub(super) fn touch(&mut self, edge: u32, tickets: &Arc<Tickets>, touch: Touch) {
        let edge = &self.edges[edge as usize];
        self.touched.push(Touched {
            tickets: tickets.clone(),
            touch,
            lane: edge.is_direct().then_some(edge.lane),
        });
    }

    /// The epoch has been submitted: its regions get the tickets of the NIC.
    pub(super) fn leave_tickets(&mut self) {
        for touched in self.touched.drain(..) {
            if let Some(lane) = touched.lane
                && let Link::Nic(line) = &self.half.peers[lane].link
            {
                touched.tickets.add(line, touched.touch);
            }
        }
    }

    /// What this rank's halves know of each other, if the epoch names this rank itself.
    pub(super) fn own(&self) -> Option<&Arc<Myself<D>>> {
        let myself = self.half.myself.as_ref()?;
        let index = self.myself?;
        let members = &self.groups.current().members;
        members.contains(&index).then_some(myself)
    }
}

/// Enqueues the wait for those tickets of earlier epochs that conflict with this epoch's use of its regions.
#[inline]
pub(super) fn settle<D: Device>(
    stream: &Stream<'_, D>,
    touched: &[Touched],
    site: CallSite,
) -> Result<()> {
    if touched.is_empty() {
        return Ok(());
    }
    let each = touched.iter().map(|each| (&*each.tickets, each.touch));
    settle_all(stream, each, site)
}

impl<'s, T: Element, K: Discipline, D: Device> Outbox<'s, T, D, K> {
    pub(super) fn new(body: OutboxBody<D>) -> Self {
        const { assert!(size_of::<T>() <= LARGEST, "elements have less than 4 GiB") };
        Self::from_held(Held::new(body))
    }

    pub(super) fn from_held(held: Held<OutboxBody<D>>) -> Self {
        Outbox {
            held,
            marker: PhantomData,
        }
    }

    /// The word by which a target exposes its memory to this rank.
    #[cfg(test)]
    pub(crate) fn exposed_word(&self, index: usize) -> tidegate_hal::memory::Ptr {
        self.held.half.peers[index].word
    }

    /// The window's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// assert_eq!(outbox.name(), "slots");
    /// # Ok(()) });
    /// ```
    pub fn name(&self) -> &str {
        &self.held.half.window.name
    }

    /// The window's id, which is the same on all ranks. Reports and errors name it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// println!("reports call it {}", outbox.id());
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> WindowId {
        self.held.half.window.id
    }

    /// The ranks that this outbox leads to, in ascending order.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// for rank in outbox.targets() {
    ///     println!("to rank {rank}");
    /// }
    /// # Ok(()) });
    /// ```
    pub fn targets(&self) -> impl Iterator<Item = usize> + '_ {
        self.held.half.peer_ranks()
    }

    /// The lines of the slots whose data a NIC reads directly, in the order of the slots.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Arc<NicLine>> + '_ {
        let direct = self.held.edges.iter().filter(|edge| edge.is_direct());
        direct.filter_map(|edge| match &self.held.half.peers[edge.lane].link {
            Link::Nic(line) => Some(line.clone()),
            _ => None,
        })
    }

    /// The handles of all outbound slots (or ranges, or targets), in the order of their declaration.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let slots = outbox.slots();
    /// let mut epoch = outbox.start();
    /// for slot in slots {
    ///     epoch.put(&src, slot)?; // the same to each
    /// }
    /// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// # Ok(()) });
    /// ```
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Out<T>> + use<'s, T, K, D> {
        let declaration = self.held.half.declaration;
        let each = move |index| Out::new(declaration, index);
        (0..self.held.edges.len()).map(each)
    }
}

// SAFETY: the one leaf is visited; the marker is the only mention of the brand.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Carry<'s, D> for Outbox<'s, T, D, K> {
    type At<'t> = Outbox<'t, T, D, K>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        let half = &mut self.held.half;
        visitor.leaf(half.id, &mut half.home, None);
        visitor.own(HalfKind::Outbox, half.myself.as_ref());
        visitor.stake(|| half.stake(false));
    }
}

impl<T, K: Discipline, D: Device> std::fmt::Debug for Outbox<'_, T, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.debug::<T>("Outbox", f)
    }
}
