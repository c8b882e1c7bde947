//! The target's half of a window.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use tidegate_hal::batch::{Add, Awaited, Batch, Landed, Landing, QUANTUM, Step, Tag, Wait};
use tidegate_hal::device::{Call, Device, HostAccess, Reclaim, Stream as _};
use tidegate_hal::ids::WindowId;
use tidegate_hal::nic::Program;
use tidegate_hal::site::CallSite;
use tidegate_words::State as Look;

use super::Typed;
use super::view::{Slots, Table};
use super::{
    Atomic, Body, ByRange, BySlot, Discipline, Group, Half, Held, Peer, Way, submit, submit_armed,
};
use crate::carry::{Carry, State, Visitor, given_up};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Cause;
use crate::error::{Error, Rejected, Result, WindowName};
use crate::footprint::Footprint;
use crate::myself::{Act, Myself};
use crate::part::Members;
use crate::side::Side;
use crate::stream::{Arm, Stream};

/// The memory that others put into, while nobody does: the target's half of a window, at home on stream `'s`.
///
/// Kernels of the stream see slots through [`Inbox::view`], the memory of other windows through [`Inbox::memory`] and
/// [`Inbox::memory_mut`]. The host sees it where it has access to memory of the device ([`HostAccess`]): slots through
/// [`Inbox::read`], other memory through [`Inbox::host_mut`]. On GPUs a kernel copies to a region what the host is to
/// see, and [`Region::into_host`](crate::Region::into_host) brings it.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed = inbox.post(s)?; // origins may write the slots
/// # let _outbox = outbox.start().complete(s)?;
/// let mut inbox = exposed.wait(s)?; // they have
/// let slots = inbox.read(s)?;
/// assert_eq!(slots.slot(from), [0; 4]);
/// # Ok(()) });
/// ```
#[must_use = "an inbox that is dropped posts no more: its origins wait for the next epoch in vain"]
pub struct Inbox<'s, T, D: Device, K: Discipline = BySlot> {
    held: Held<InboxBody<D>>,
    marker: Typed<'s, T, K>,
}

/// An inbox whose memory is exposed to a group of origins: nothing here can touch it until [`Exposed::wait`].
///
/// Dropping it revokes the window.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed: Exposed<'_, u64> = inbox.post(s)?;
/// // (Reading a slot here does not compile.)
/// # let _outbox = outbox.start().complete(s)?;
/// let inbox = exposed.wait(s)?;
/// # Ok(()) });
/// ```
#[must_use = "dropping an exposure half-done revokes the window; call `wait`"]
pub struct Exposed<'s, T, D: Device, K: Discipline = BySlot> {
    held: Held<InboxBody<D>>,
    marker: Typed<'s, T, K>,
}

/// What [`Exposed::test`] found.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::generic::Tested;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut exposed = inbox.post(s)?;
/// # let _outbox = outbox.start().complete(s)?;
/// let inbox = loop {
///     match exposed.test(s)? {
///         Tested::Done(inbox) => break inbox,
///         Tested::Pending(still) => exposed = still, // something else can be done here
///     }
/// };
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub enum Tested<'s, T, D: Device, K: Discipline = BySlot> {
    /// All origins have completed: the inbox is back.
    Done(Inbox<'s, T, D, K>),
    /// Not all of them have.
    Pending(Exposed<'s, T, D, K>),
}

pub(super) struct InboxBody<D: Device> {
    pub(super) half: Half<D>,
    /// Kernels in the queue point to it, while this token goes on being changed.
    pub(super) table: Table<D>,
    /// Of a window by range: what origins may access of the memory.
    pub(super) footprints: Vec<Footprint>,
    /// What no origin may access, once that was asked for. Kernels in the queue point to it, too.
    pub(super) rest: OnceLock<Arc<Members>>,
    /// Post and wait for all origins, then for each group that was used.
    epochs: Vec<Epoch<D>>,
    /// The epoch that is open, or was last.
    current: usize,
    /// How far the stream must have come for the operands to be those of the last epoch.
    mark: u64,
}

/// What an exposure epoch that is enqueued whole does towards this rank itself.
const WHOLE: [Act; 2] = [Act::Post, Act::Wait];

/// The batches of a group of origins.
struct Epoch<D: Device> {
    /// The group's number; 0 for all origins.
    group: u64,
    members: Vec<usize>,
    /// Whether this rank is one of them.
    names_myself: bool,
    post: Arc<Batch>,
    wait: Arc<Batch>,
    /// Both as one, once that was asked for.
    whole: Option<Arc<Batch>>,
    /// What the NIC is armed with for the post.
    arms: Vec<Arm<D>>,
}

impl<D: Device> Body for InboxBody<D> {
    type Device = D;
    const SIDE: Side = Side::Inbox;
    fn half(&self) -> &Half<D> {
        &self.half
    }
}

impl<D: Device> Epoch<D> {
    fn new(half: &Half<D>, group: u64, members: Vec<usize>) -> Result<Self> {
        let peers = || members.iter().map(|index| &half.peers[*index]);
        let post = peers().map(signal_steps);
        let wait = peers().map(|peer| vec![wait_step(peer, half.window.id)]);
        let arms = signal_arms(half, peers())?;
        // SAFETY: all words lie in blocks that the half holds; this inbox's stream alone advances the operands. A wait
        // whose data may land writes the slot of its origin alone, which is exposed to that origin until the wait is
        // over.
        let (post, wait) = unsafe { (Batch::new(post, Vec::new()), Batch::new(wait, Vec::new())) };
        let by_nic = !arms.is_empty();
        let (post, wait) = (post.helped(by_nic), wait.helped(by_nic));
        let names_myself = peers().any(|peer| peer.rank == half.world.rank());
        Ok(Epoch {
            group,
            members,
            names_myself,
            post: Arc::new(post),
            wait: Arc::new(wait),
            whole: None,
            arms,
        })
    }

    /// Makes post and wait one batch, the first time.
    fn join(&mut self) {
        let (post, wait) = (&self.post, &self.wait);
        self.whole.get_or_insert_with(|| {
            // SAFETY: the two batches touch different words: the posts the origins' or this half's doorbells, the
            // waits this inbox's own. A wait, where data lands, writes the slot and looks at the landing of the epoch
            // that it waits for. With two buffers the post exposes the other ones, and who is to write these again
            // needs the next post, which is behind this batch; with one buffer the wait cannot be over before the
            // post.
            Arc::new(unsafe { Batch::join(&[post, wait]) })
        });
    }
}

/// What the NIC does for signals without data to some peers of a half.
pub(super) fn signal_arms<'a, D: Device>(
    half: &Half<D>,
    peers: impl Iterator<Item = &'a Peer>,
) -> Result<Vec<Arm<D>>> {
    let mut arms = Vec::new();
    for peer in peers {
        if let Way::Nic(line) = &peer.way {
            let program = Program {
                transfers: Vec::new(),
                signal: line.signal().clone(),
                keep: Vec::new(),
            };
            // SAFETY: the word is the peer's for what this half tells it, in registered memory; the bell is the peer's.
            let program = unsafe { line.queue().prepare(program) }?;
            arms.push(Arm::new(line, program, &half.window));
        }
    }
    Ok(arms)
}

/// Tells a peer without data: an origin that the memory is exposed to it, say.
pub(super) fn signal_steps(peer: &Peer) -> Vec<Step> {
    match peer.way {
        Way::Mapped { word, bell } => vec![Step::Add(Add {
            word,
            value: QUANTUM,
            bell,
        })],
        Way::Nic(ref line) => line.ring().collect(),
    }
}

/// Whether all that the epoch after `operand` puts to a slot has landed. (What cannot be read never comes.)
fn has_landed<D: Device>(device: &D, landed: &Landed, operand: u64) -> bool {
    let (at, tag) = landed.from.of_epoch(operand);
    let mut bytes = vec![0; Landing::room(landed.bytes)];
    // SAFETY: the landing lies in the window's block, which the half holds. Its origin may be writing it: four bytes
    // and their tag by one store, and a copy of an aligned word is not torn; nothing but the tags is looked at.
    let read = unsafe { device.read(at, &mut bytes) };
    read.is_ok()
        && bytes
            .chunks_exact(8)
            .all(|unit| unit[4..] == tag.to_ne_bytes())
}

/// Waits until an origin has completed.
fn wait_step(peer: &Peer, window: WindowId) -> Step {
    let tag = Tag {
        window: Some(window),
        peer: peer.rank as u32,
        awaited: Awaited::Completion,
    };
    Step::Wait(Wait {
        word: peer.word,
        operand: peer.operand,
        quantum: QUANTUM,
        tag,
        landed: peer.landed,
    })
}

impl<D: Device> InboxBody<D> {
    pub(super) fn new(half: Half<D>, table: Table<D>, footprints: Vec<Footprint>) -> Result<Self> {
        let all = Epoch::new(&half, 0, (0..half.peers.len()).collect())?;
        Ok(InboxBody {
            half,
            table,
            footprints,
            rest: OnceLock::new(),
            epochs: vec![all],
            current: 0,
            mark: 0,
        })
    }

    /// Chooses the batches of a group, making them the first time.
    fn choose(&mut self, group: Option<&Group>) -> Result<()> {
        let id = group.map_or(0, |group| group.id);
        if let Some(index) = self.epochs.iter().position(|epoch| epoch.group == id) {
            self.current = index;
            return Ok(());
        }
        let members = self.half.members(
            group.expect("all origins are known from the start"),
            "an origin",
        )?;
        // A group that was made again is not another one.
        self.current = match self.epochs[1..]
            .iter()
            .position(|epoch| epoch.members == members)
        {
            Some(index) => index + 1,
            None => {
                self.epochs.push(Epoch::new(&self.half, id, members)?);
                self.epochs.len() - 1
            }
        };
        Ok(())
    }

    pub(super) fn post_batch(&self) -> &Arc<Batch> {
        &self.epochs[self.current].post
    }

    /// What the NIC is armed with before the post is submitted.
    pub(super) fn arms(&self) -> &[Arm<D>] {
        &self.epochs[self.current].arms
    }

    /// Submits a batch that posts.
    fn submit(&self, stream: &Stream<'_, D>, batch: &Arc<Batch>, site: CallSite) -> Result<()> {
        self.half.epochs.enqueue(stream, self.some(), || {
            submit_armed(stream, &[self.arms()], batch, site)
        })
    }

    /// The origins of the current group, unless it is all of them.
    fn some(&self) -> Option<&[usize]> {
        (self.current != 0).then(|| &self.epochs[self.current].members[..])
    }

    /// Submits post and wait as one.
    fn expose(&mut self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        self.epochs[self.current].join();
        let whole = self.epochs[self.current].whole.as_ref();
        self.submit(stream, whole.expect("it was just made"), site)?;
        self.half.window.waits_at(Side::Inbox, site);
        Ok(())
    }

    pub(super) fn wait_batch(&self) -> &Arc<Batch> {
        &self.epochs[self.current].wait
    }

    /// What identifies the pair of batches that is current.
    pub(super) fn epoch_key(&self) -> (u64, u64) {
        (self.half.id, self.epochs[self.current].group)
    }

    pub(super) fn choose_all(&mut self) {
        self.current = 0;
    }

    pub(super) fn passed_at(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// What is known of this rank's own halves, if the epoch names this rank itself.
    pub(super) fn own(&self) -> Option<&Arc<Myself<D>>> {
        let myself = self.half.myself.as_ref()?;
        self.epochs[self.current].names_myself.then_some(myself)
    }

    /// Refuses what would wait for this rank itself for ever, if it were enqueued now.
    fn admit(&self, stream: &Stream<'_, D>, acts: &[Act]) -> Result<()> {
        self.own()
            .map_or(Ok(()), |myself| myself.admit(stream, acts))
    }

    /// Counts what has been enqueued towards this rank itself.
    fn done(&self, stream: &Stream<'_, D>, acts: &[Act]) {
        if let Some(myself) = self.own() {
            myself.done(stream, acts);
        }
    }

    /// Enqueues the wait of the epoch that is open.
    fn wait(&mut self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        submit(stream, self.wait_batch(), site)?;
        self.half.window.waits_at(Side::Inbox, site);
        self.done(stream, &[Act::Wait]);
        self.passed_at(stream.raw().mark());
        Ok(())
    }
}

impl<'s, T: Element, K: Discipline, D: Device> Inbox<'s, T, D, K> {
    pub(super) fn new(body: InboxBody<D>) -> Self {
        Inbox {
            held: Held::new(body),
            marker: PhantomData,
        }
    }

    pub(super) fn half(&self) -> &Half<D> {
        &self.held.half
    }

    pub(super) fn table(&self) -> &Table<D> {
        &self.held.table
    }

    pub(super) fn body_mut(&mut self) -> &mut InboxBody<D> {
        &mut self.held
    }

    /// The window's name.
    pub fn name(&self) -> &str {
        &self.held.half.window.name
    }

    /// The window's id, the same on all ranks: reports and errors name it.
    pub fn id(&self) -> WindowId {
        self.held.half.window.id
    }

    /// What errors call the window.
    pub(crate) fn named(&self) -> WindowName {
        self.held.half.window.named()
    }

    /// Whether an epoch could begin, as far as that is known.
    pub(crate) fn ready(&self, stream: &Stream<'_, D>) -> Result<()> {
        self.held.half.ready(stream)
    }

    /// Revokes the window: this rank could not enqueue what belongs to an epoch that it has enqueued.
    pub(crate) fn revoke(&self, error: &Error) {
        self.held.half.stake(true).give_up(error);
    }

    /// The ranks that put into it, ascending.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// assert!(inbox.origins().eq([1 - s.world().rank()]));
    /// # Ok(()) });
    /// ```
    pub fn origins(&self) -> impl Iterator<Item = usize> + '_ {
        self.held.half.peers.iter().map(|peer| peer.rank)
    }

    /// Enqueues the exposure of the memory to all origins (MPI: `MPI_Win_post`). What is enqueued before may still
    /// read it.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`], [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch), [`Error::Device`], or what made the stream fail. The inbox is gone then,
    /// and the window is revoked for all ranks, so that no origin waits for it ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let _outbox = epoch.complete(s)?;
    /// let mut inbox = exposed.wait(s)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn post(self, stream: &Stream<'s, D>) -> Result<Exposed<'s, T, D, K>> {
        self.try_post(stream).map_err(given_up)
    }

    /// As [`Inbox::post`], but has no effect if it fails: the inbox comes back.
    ///
    /// # Errors
    ///
    /// As [`Inbox::post`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = match inbox.try_post(s) {
    ///     Ok(exposed) => exposed,
    ///     Err(refused) => {
    ///         println!("{}", refused.error);
    ///         s.synchronize()?; // makes room, if the queue was full
    ///         refused.value.post(s)?
    ///     }
    /// };
    /// # let (_outbox, _inbox) = (outbox.start().complete(s)?, exposed.wait(s)?);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_post(self, stream: &Stream<'s, D>) -> Result<Exposed<'s, T, D, K>, Rejected<Self>> {
        self.post_group(stream, None)
    }

    /// As [`Inbox::post`], to some of the origins only. Each of them must start an epoch that names this rank.
    ///
    /// # Errors
    ///
    /// [`EpochError::NotInGroup`](crate::error::EpochError::NotInGroup), and as [`Inbox::post`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let peer = Group::new([1 - s.world().rank()]);
    /// let exposed = inbox.post_to(s, &peer)?;
    /// let _outbox = outbox.start_with(&peer)?.complete(s)?; // on the peer, for this rank
    /// let inbox = exposed.wait(s)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn post_to(self, stream: &Stream<'s, D>, group: &Group) -> Result<Exposed<'s, T, D, K>> {
        self.try_post_to(stream, group).map_err(given_up)
    }

    /// As [`Inbox::post_to`], but has no effect if it fails: the inbox comes back.
    ///
    /// # Errors
    ///
    /// As [`Inbox::post_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let refused = inbox.try_post_to(s, &Group::new([9])).unwrap_err(); // rank 9 is no origin
    /// let exposed = refused.value.post(s)?;
    /// # let (_outbox, _inbox) = (outbox.start().complete(s)?, exposed.wait(s)?);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_post_to(
        self,
        stream: &Stream<'s, D>,
        group: &Group,
    ) -> Result<Exposed<'s, T, D, K>, Rejected<Self>> {
        self.post_group(stream, Some(group))
    }

    #[track_caller]
    fn post_group(
        mut self,
        stream: &Stream<'s, D>,
        group: Option<&Group>,
    ) -> Result<Exposed<'s, T, D, K>, Rejected<Self>> {
        let site = Location::caller();
        let body = &mut *self.held;
        let posted = body
            .half
            .ready(stream)
            .and_then(|()| body.choose(group))
            .and_then(|()| body.submit(stream, body.post_batch(), site));
        match posted {
            Ok(()) => {
                body.done(stream, &[Act::Post]);
                Ok(Exposed {
                    held: self.held.take(),
                    marker: PhantomData,
                })
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// Enqueues an exposure epoch whole, [`post`](Inbox::post) and [`wait`](Exposed::wait) as *one* batch: on a GPU one
    /// kernel instead of two. For who only receives, or has nothing to do between the two; what sends on the same
    /// stream as well has [`exchange`](super::exchange).
    ///
    /// Nothing that is enqueued later on this stream, or behind a hand-off from it, begins before all origins have
    /// completed: none of their completes may depend on it. So where this rank is an origin itself, that epoch is
    /// completed before (which takes two buffers), or on another stream; and where two ranks send to each other, at
    /// least one of them completes before it exposes.
    ///
    /// # Errors
    ///
    /// As [`Inbox::post`]; [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) if this rank is an origin itself, and its outbox is at home on this
    /// stream, too, without such a complete; and [`Error::Device`] where the batch has more lanes than the stream may
    /// carry out at a time (post and wait apart need half as many).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let _outbox = epoch.complete(s)?; // first: so the peer does not wait for this rank
    /// let mut inbox = inbox.expose(s)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn expose(self, stream: &Stream<'s, D>) -> Result<Self> {
        self.try_expose(stream).map_err(given_up)
    }

    /// As [`Inbox::expose`], but has no effect if it fails: the inbox comes back.
    ///
    /// # Errors
    ///
    /// As [`Inbox::expose`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let _outbox = outbox.start().complete(s)?;
    /// let inbox = match inbox.try_expose(s) {
    ///     Ok(inbox) => inbox,
    ///     Err(refused) => refused.value.post(s)?.wait(s)?, // by two smaller batches
    /// };
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_expose(self, stream: &Stream<'s, D>) -> Result<Self, Rejected<Self>> {
        self.expose_group(stream, None)
    }

    /// As [`Inbox::expose`], to some of the origins only, as [`Inbox::post_to`].
    ///
    /// # Errors
    ///
    /// As [`Inbox::post_to`] and [`Inbox::expose`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let peer = Group::new([1 - s.world().rank()]);
    /// let _outbox = outbox.start_with(&peer)?.complete(s)?;
    /// let inbox = inbox.expose_to(s, &peer)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn expose_to(self, stream: &Stream<'s, D>, group: &Group) -> Result<Self> {
        self.try_expose_to(stream, group).map_err(given_up)
    }

    /// As [`Inbox::expose_to`], but has no effect if it fails: the inbox comes back.
    ///
    /// # Errors
    ///
    /// As [`Inbox::expose_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let _outbox = outbox.start().complete(s)?;
    /// let refused = inbox.try_expose_to(s, &Group::new([9])).unwrap_err(); // rank 9 is no origin
    /// let inbox = refused.value.expose(s)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_expose_to(
        self,
        stream: &Stream<'s, D>,
        group: &Group,
    ) -> Result<Self, Rejected<Self>> {
        self.expose_group(stream, Some(group))
    }

    #[track_caller]
    fn expose_group(
        mut self,
        stream: &Stream<'s, D>,
        group: Option<&Group>,
    ) -> Result<Self, Rejected<Self>> {
        let site = Location::caller();
        let body = &mut *self.held;
        let exposed = body
            .half
            .ready(stream)
            .and_then(|()| body.choose(group))
            .and_then(|()| body.admit(stream, &WHOLE))
            .and_then(|()| body.expose(stream, site));
        match exposed {
            Ok(()) => {
                body.done(stream, &WHOLE);
                body.passed_at(stream.raw().mark());
                Ok(self)
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }
}

impl<'s, T: Element, D: HostAccess> Inbox<'s, T, D, BySlot> {
    /// Waits until the stream has passed, and lets the host read the slots.
    ///
    /// # Errors
    ///
    /// What made the stream fail; [`CaptureError::Inside`](crate::error::CaptureError::Inside).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// let slots = inbox.read(s)?; // waits for the stream
    /// assert_eq!(slots[from], [7; 4]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn read<'b>(&'b mut self, stream: &Stream<'s, D>) -> Result<Slots<'b, T>> {
        stream.synchronize_in(Call::Read, Location::caller())?;
        // SAFETY: the stream has passed everything that was enqueued, the last wait included; the inbox is borrowed
        // exclusively, so nothing can be enqueued with it, or posted, while the slots are read.
        Ok(unsafe { Slots::new(self.held.table.slots(), self.held.half.declaration) })
    }
}

macro_rules! host_memory {
    ($kind:ty) => {
        impl<'s, T: Element, D: HostAccess> Inbox<'s, T, D, $kind> {
            /// Waits until the stream has passed, and lets the host read and write the memory.
            ///
            /// # Errors
            ///
            /// What made the stream fail; [`CaptureError::Inside`](crate::error::CaptureError::Inside).
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
            /// let mut epoch = outbox.start();
            /// epoch.put(&src, to)?;
            /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
            /// let memory = inbox.host_mut(s)?; // waits for the stream
            /// assert_eq!(memory[..], [7, 7, 7, 7, 0, 0, 0, 0]);
            /// memory.fill(0);
            /// # Ok(()) });
            /// ```
            #[track_caller]
            pub fn host_mut<'b>(&'b mut self, stream: &Stream<'s, D>) -> Result<&'b mut [T]> {
                stream.synchronize_in(Call::HostMut, Location::caller())?;
                let table = &self.held.table;
                let (memory, len) = (table.memory.0.cast::<T>(), table.len);
                // SAFETY: `memory` has `len` elements for which all bytes are valid, aligned to a cache line; the
                // stream has passed everything that was enqueued, the last wait included; the inbox is borrowed
                // exclusively, so nothing can be enqueued with it, or posted, meanwhile; origins access it only while
                // it is exposed.
                let memory = unsafe { std::slice::from_raw_parts_mut(memory, len) };
                Ok(memory)
            }
        }
    };
}
host_memory!(ByRange);
host_memory!(Atomic);

impl<'s, T: Element, K: Discipline, D: Device> Exposed<'s, T, D, K> {
    pub(super) fn body(&self) -> &InboxBody<D> {
        &self.held
    }

    /// Enqueues the wait until all origins of the epoch have completed (MPI: `MPI_Win_wait`). What is enqueued
    /// later sees what they put; and where they put nothing, or less than the slot, what an earlier epoch left there (see
    /// [`Slots`](super::Slots): a header in every epoch says how much has come).
    ///
    /// # Errors
    ///
    /// [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) if this rank is an origin itself, its outbox is at home on this stream, too, and its
    /// complete has not been enqueued: that could only come behind the wait. [`Error::Revoked`], [`Error::Device`], or
    /// what made the stream fail. The exposure is gone then, and the window is revoked for all ranks
    /// ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// # let _outbox = outbox.start().complete(s)?;
    /// let inbox = exposed.wait(s)?; // enqueued: the host goes on
    /// # let mut sum = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
    /// let add = move |inbox: Slots<'_, u64>, sum: &mut [u64]| sum[0] = inbox[from].iter().sum();
    /// s.launch(add, (inbox.view(), &mut sum))?; // sees what came
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn wait(self, stream: &Stream<'s, D>) -> Result<Inbox<'s, T, D, K>> {
        self.try_wait(stream).map_err(given_up)
    }

    /// As [`Exposed::wait`], but has no effect if it fails: the exposure comes back (and dropping it revokes the window).
    ///
    /// # Errors
    ///
    /// As [`Exposed::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut window = SlotWindow::<u64>::new("loop"); // from this rank to itself
    /// let (from, to) = (window.slot_from(0, 0, 1), window.slot_to(0, 0));
    /// let (inbox, outbox) = window.open(&s)?;
    /// let refused = inbox.post(&s)?.try_wait(&s).unwrap_err(); // it would wait for what comes behind it
    /// let _outbox = outbox.start().complete(&s)?;
    /// let inbox = refused.value.wait(&s)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_wait(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Inbox<'s, T, D, K>, Rejected<Self>> {
        let site = Location::caller();
        let body = &mut *self.held;
        let waited = (body.half.ready(stream))
            .and_then(|()| body.admit(stream, &[Act::Wait]))
            .and_then(|()| body.wait(stream, site));
        self.closed(waited)
    }

    /// The inbox, if the wait was enqueued.
    fn closed(mut self, waited: Result<()>) -> Result<Inbox<'s, T, D, K>, Rejected<Self>> {
        match waited {
            Ok(()) => Ok(Inbox {
                held: self.held.take(),
                marker: PhantomData,
            }),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// Looks whether all origins have completed, without waiting (MPI: `MPI_Win_test`); if so, the inbox is back as
    /// after [`Exposed::wait`]. Pending as long as the stream has not come to the end of this inbox's last epoch.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside), and as [`Exposed::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::generic::Tested;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// match exposed.test(s)? {
    ///     Tested::Done(_inbox) => println!("all have come"),
    ///     Tested::Pending(exposed) => {
    ///         println!("not yet");
    /// #       outbox.start().complete(s)?;
    ///         let _inbox = exposed.wait(s)?;
    ///     }
    /// }
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn test(self, stream: &Stream<'s, D>) -> Result<Tested<'s, T, D, K>> {
        self.try_test(stream).map_err(given_up)
    }

    /// As [`Exposed::test`], but has no effect if it fails: the exposure comes back.
    ///
    /// # Errors
    ///
    /// As [`Exposed::test`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::generic::Tested;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// # let _outbox = outbox.start().complete(s)?;
    /// let inbox = match exposed.try_test(s) {
    ///     Ok(Tested::Done(inbox)) => inbox,
    ///     Ok(Tested::Pending(exposed)) => exposed.wait(s)?,
    ///     Err(refused) => refused.value.wait(s)?, // it is still exposed
    /// };
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_test(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Tested<'s, T, D, K>, Rejected<Self>> {
        let half = &self.held.half;
        if let Err(error) = stream
            .not_capturing("a test")
            .and_then(|()| half.ready(stream))
        {
            return Err(Rejected::new(error, self));
        }
        // Until the stream has passed the last wait, the operands are those of an earlier epoch.
        if half.home.passed() < self.held.mark {
            return Ok(Tested::Pending(self));
        }
        let device = half.world.device();
        let epoch = &self.held.epochs[self.held.current];
        let states = epoch.members.iter().map(|index| {
            let peer = &half.peers[*index];
            // SAFETY: word and operand lie in the window's block, which the half holds.
            let (word, operand) = unsafe { (device.peek(peer.word), device.peek(peer.operand)) };
            match tidegate_words::Word::new(word).look(operand, QUANTUM) {
                Look::Reached => Look::Reached,
                // What has landed counts, poisoned or not.
                _ if peer
                    .landed
                    .is_some_and(|landed| has_landed(device, &landed, operand)) =>
                {
                    Look::Reached
                }
                state => state,
            }
        });
        let (mut all, mut in_vain) = (true, false);
        for state in states {
            all &= state == Look::Reached;
            in_vain |= state == Look::Poisoned;
        }
        // What will never come is for the stream to find out: then the error says what it was. So nothing is asked of
        // this rank's own complete: such a wait ends without.
        if all || in_vain {
            let waited = self.held.wait(stream, Location::caller());
            self.closed(waited).map(Tested::Done)
        } else {
            Ok(Tested::Pending(self))
        }
    }
}

impl<T, K: Discipline, D: Device> Drop for Exposed<'_, T, D, K> {
    fn drop(&mut self) {
        if !self.held.is_taken() {
            self.held.half.revoke("an `Exposed` before its wait");
        }
    }
}

// SAFETY: the one leaf is visited; the marker is the only mention of the brand.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Carry<'s, D> for Inbox<'s, T, D, K> {
    type At<'t> = Inbox<'t, T, D, K>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        let InboxBody { half, mark, .. } = &mut *self.held;
        visitor.leaf(half.id, &mut half.home, Some(mark));
        visitor.own(Side::Inbox, half.myself.as_ref());
        visitor.stake(|| half.stake(false));
    }
}

// SAFETY: the one leaf is visited; the marker is the only mention of the brand.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Carry<'s, D> for Exposed<'s, T, D, K> {
    type At<'t> = Exposed<'t, T, D, K>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        let InboxBody {
            half,
            mark,
            epochs,
            current,
            ..
        } = &mut *self.held;
        let state = State::Exposed(epochs[*current].group);
        visitor.leaf_in(state, half.id, &mut half.home, Some(mark));
        visitor.own(Side::Inbox, half.myself.as_ref());
        visitor.stake(|| half.stake(true));
    }
}

impl<T, K: Discipline, D: Device> std::fmt::Debug for Inbox<'_, T, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.debug::<T>("Inbox", f)
    }
}

impl<T, K: Discipline, D: Device> std::fmt::Debug for Exposed<'_, T, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.debug::<T>("Exposed", f)
    }
}
