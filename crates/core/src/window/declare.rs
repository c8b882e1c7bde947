//! The declaration of a window.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tidegate_hal::batch::Shape;
use tidegate_hal::device::Device;
use tidegate_hal::site::CallSite;

use super::describe::{Description, Inbound, Outbound, Purpose, Terms};
use super::handle::{In, Out};
use super::joint::Joint;
use super::{Atomic, ByRange, BySlot, Discipline};
use crate::element::Element;
use crate::error::{Error, WindowError};
use crate::footprint::Footprint;
use crate::ground::fresh_id;
use crate::layout::{Chosen, Layout};
use crate::nic::Throttle;

/// How many buffers each slot of a window has. A slot you skip keeps the data from two epochs ago if it has two
/// buffers, and from the last epoch if it has one.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// let window = SlotWindow::<f64>::new("halo").buffers(Buffers::Single); // half the memory
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// One buffer. A complete waits for the post of the same epoch.
    Single = 1,
    /// Two buffers, used in turn. A complete waits for the post of the epoch before, which has nearly always come by
    /// then.
    Double = 2,
}

/// The declaration of a window, before it is opened. All ranks must open their windows in the same order. If threads of
/// one rank open windows, the program must make sure that they do so in that order, too.
///
/// tidegate finds a wrong order by the windows' *names*. So two windows that are open at the same time must have
/// different names. A name can be used again when every rank has dropped both halves of the window that had it. (A half
/// that is forgotten counts as open.)
///
/// `T` is the element type, and `K` the [discipline](crate::window#disciplines): programs write [`SlotWindow`],
/// [`RangeWindow`] or [`AtomicWindow`]. Methods that take the declaration by value, such as [`Window::fail_after`],
/// come right after `new`. Then the program declares slots or ranges. Each such call returns a handle ([`In`],
/// [`Out`]), by which epochs and kernels find the slot.
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(3, |world| {
/// # stream!(let s = world.stream()?);
/// # let src = Region::from_slice(&world, &[world.rank() as f64; 1000])?.on(&s)?;
/// # let mut x = Region::<f64>::zeroed(&world, 1000)?.on(&s)?;
/// let (left, right) = world.ring();
/// let mut halo = SlotWindow::<f64>::new("halo");
/// // If left and right are the same rank, the key says which slot is which: 0 for what goes left, 1 for what goes right.
/// let from_right = halo.slot_from(right, 0, 1000);
/// let from_left = halo.slot_from(left, 1, 1000);
/// let to_left = halo.slot_to(left, 0);
/// let to_right = halo.slot_to_with_len(right, 1, 1000);
/// let (inbox, outbox) = halo.open(&s)?;
///
/// let mut epoch = outbox.start();
/// epoch.put(&src, to_left)?;
/// epoch.put(&src, to_right)?;
/// let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
/// let take = move |came: Slots<'_, f64>, x: &mut [f64]| x.copy_from_slice(came.slot(from_left));
/// s.launch(take, (inbox.view(), &mut x))?;
/// assert_eq!(inbox.read(&s)?.slot(from_right), [right as f64; 1000]);
/// # assert_eq!(x.into_host(&s)?[0], left as f64);
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct Window<T, K> {
    /// The number of the declaration. Its handles contain it, so a declaration cannot be cloned.
    pub(super) id: u64,
    pub(super) name: Arc<str>,
    pub(super) description: Description,
    pub(super) limit: Option<Duration>,
    pub(super) throttle: Throttle,
    /// Whether nothing lands in the inbox.
    pub(super) for_kernels: bool,
    /// Whether all data of a call is one round, which this rank reduces.
    pub(super) reduces_at_once: bool,
    /// The error because of which this rank does not want the window after all. It is told where the ranks meet, so
    /// that none of them waits for this rank.
    pub(super) refused: Option<Error>,
    /// For outbound slots that are layouts, by their numbers: the elements, in their order.
    pub(super) layouts: BTreeMap<u32, Chosen>,
    /// For each outbound slot, the program's call that declared it.
    pub(super) sites: Vec<CallSite>,
    marker: PhantomData<fn(T, K)>,
}

/// The declaration of a window of slots, each for one origin and key: see [`Window`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// # let (left, right) = world.ring();
/// let mut window = SlotWindow::<f64>::new("shift");
/// let from_left = window.slot_from(left, 0, 1000);
/// let to_right = window.slot_to(right, 0);
/// let (inbox, outbox) = window.open(&s)?;
/// # Ok(()) });
/// ```
pub type SlotWindow<T> = Window<T, BySlot>;

/// The declaration of a window that origins access by ranges or layouts, which they declare: see [`Window`].
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// # let (rank, peer) = (world.rank(), 1 - world.rank());
/// # let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
/// # let mut got = Region::<f64>::zeroed(&world, 2)?.on(&s)?;
/// let mut window = RangeWindow::<f64>::new("half", 8);
/// let mine = window.range_to(peer, 4 * rank..4 * rank + 4); // the other half is the peer's own
/// let (inbox, outbox) = window.open(&s)?;
///
/// let mut epoch = outbox.start();
/// epoch.put(src.slice(0..2)?, mine)?;
/// epoch.get(&mut got, mine.at(2))?;
/// let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
/// assert_eq!(inbox.host_mut(&s)?[4 * peer..4 * peer + 4], [1.0, 1.0, 0.0, 0.0]);
/// # Ok(()) });
/// ```
pub type RangeWindow<T> = Window<T, ByRange>;

/// The declaration of a window that origins update atomically: see [`Window`].
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(3, |world| {
/// # stream!(let s = world.stream()?);
/// # let one = Region::from_slice(&world, &[1])?.on(&s)?;
/// let mut window = AtomicWindow::<u64>::new("counters", 2);
/// let counters = window.target(0);
/// let (inbox, outbox) = window.open(&s)?;
///
/// let mut epoch = outbox.start();
/// epoch.accumulate(&one, counters.at(1), Op::Sum)?;
/// let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
/// let expected = if world.rank() == 0 { [0, 3] } else { [0, 0] };
/// assert_eq!(inbox.host_mut(&s)?, expected);
/// # Ok(()) });
/// ```
pub type AtomicWindow<T> = Window<T, Atomic>;

impl<T: Element, K: Discipline> Window<T, K> {
    fn declare(name: &str, buffers: Buffers, memory: usize) -> Self {
        let terms = Terms {
            kind: K::KIND,
            layout: T::LAYOUT,
            size: size_of::<T>(),
            purpose: Purpose::Program,
            buffers: buffers as u32,
            before: 0,
            staged: false,
            element: std::any::type_name::<T>().into(),
        };
        let description = Description {
            terms,
            memory,
            inbound: Vec::new(),
            outbound: Vec::new(),
            far: Vec::new(),
            land_up_to: 0,
            rings: Vec::new(),
            readable: None,
            started_alone: false,
        };
        Window {
            id: fresh_id(),
            name: name.into(),
            description,
            limit: None,
            throttle: Throttle::default(),
            for_kernels: false,
            reduces_at_once: false,
            refused: None,
            layouts: BTreeMap::new(),
            sites: Vec::new(),
            marker: PhantomData,
        }
    }

    /// Makes the window count as if it had had `before` epochs already, so that tests reach the limit. All ranks must
    /// say the same number, and no more than a window can have; otherwise the window is not opened
    /// ([`WindowError::Disagreement`](crate::error::WindowError::Disagreement)).
    #[doc(hidden)]
    #[must_use]
    pub fn after_epochs(mut self, before: u64) -> Self {
        self.description.terms.before = before;
        self
    }

    /// Sets a limit for each wait of this window. A wait that lasts longer fails, and the window is revoked on all
    /// ranks. A rank looks at its waits every 200 ms, so a wait may last that much longer. Without a limit, a wait
    /// lasts as long as the peer that it waits for lives. Each rank may choose a limit of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::host::prelude::*;
    ///
    /// let window = SlotWindow::<f64>::new("halo").fail_after(Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn fail_after(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Lets kernels of GPUs own the inbox ([`Inbox::lend`](crate::window::Inbox::lend)). The price: short data and
    /// their signal no longer arrive as one message, so an epoch of few bytes that the host enqueues takes longer. Each
    /// rank may choose for itself. On host streams this changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let window = SlotWindow::<f64>::new("halo").for_kernels();
    /// ```
    #[must_use]
    pub fn for_kernels(mut self) -> Self {
        self.for_kernels = true;
        self
    }

    /// Sets what an epoch of this window does if a NIC does not have enough trigger slots. The default is
    /// [`Throttle::Adaptive`]. Each rank may choose for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    /// use tidegate::Throttle;
    ///
    /// let window = SlotWindow::<f64>::new("halo").throttle(Throttle::Application);
    /// ```
    #[must_use]
    pub fn throttle(mut self, throttle: Throttle) -> Self {
        self.throttle = throttle;
        self
    }
}

impl<T, K> Window<T, K> {
    /// Adds an outbound slot, which leads to another rank's memory.
    #[track_caller]
    fn outbound(&mut self, outbound: Outbound) -> Out<T> {
        self.sites.push(Location::caller());
        let all = &mut self.description.outbound;
        all.push(outbound);
        Out::new(self.id, all.len() - 1)
    }
}

impl<T> Window<T, BySlot> {
    /// A window whose memory is slots, each for one origin and key. No other open window may have this name.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = SlotWindow::<f64>::new("halo");
    /// let from_0 = window.slot_from(0, 0, 1000);
    /// ```
    pub fn new(name: &str) -> Self
    where
        T: Element,
    {
        Self::declare(name, Buffers::Double, 0)
    }

    /// Sets whether slots have one buffer or two (the default). All ranks must choose the same.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let window = SlotWindow::<f64>::new("halo").buffers(Buffers::Single);
    /// ```
    #[must_use]
    pub fn buffers(mut self, buffers: Buffers) -> Self {
        self.description.terms.buffers = buffers as u32;
        self
    }

    /// Declares a slot of `len` elements on this rank that `origin` puts into, and returns its handle: see
    /// [`Slots::slot`](super::Slots::slot). If an origin has several slots, `key` says which slot is which.
    ///
    /// The origin must declare the other end, by [`Window::slot_to`] with the same key. Each key can be used once for
    /// an origin. Otherwise all ranks get [`WindowError::Disagreement`](crate::error::WindowError::Disagreement) when
    /// they open the window.
    ///
    /// A slot may have no elements. It then takes no memory, but this rank still waits for each epoch of the origin:
    /// that is a signal without data.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = SlotWindow::<f64>::new("halo");
    /// let faces = [0, 1].map(|key| window.slot_from(3, key, 64)); // two slots for rank 3
    /// let signal = window.slot_from(3, 2, 0); // and one without elements
    /// ```
    pub fn slot_from(&mut self, origin: usize, key: u64, len: usize) -> In<T> {
        let slots = &mut self.description.inbound;
        slots.push(Inbound { origin, key, len });
        In::new(self.id, slots.len() - 1)
    }

    /// Declares that this rank puts into the slot that `target` has for it with this `key`, and returns the handle: see
    /// [`Access::put`](super::Access::put).
    ///
    /// The target must declare the slot, by [`Window::slot_from`] with the same key. Each key can be used once for a
    /// target. Otherwise all ranks get [`WindowError::Disagreement`](crate::error::WindowError::Disagreement) when they
    /// open the window.
    ///
    /// Only `target` says how long the slot is. A put of more elements is refused; a put of fewer elements fills the
    /// slot's beginning. If both ranks know the length, use [`Window::slot_to_with_len`]: then `open` fails if they
    /// disagree.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = SlotWindow::<f64>::new("halo");
    /// let faces = [0, 1].map(|key| window.slot_to(3, key)); // the slots that rank 3 has for this rank
    /// ```
    #[track_caller]
    pub fn slot_to(&mut self, target: usize, key: u64) -> Out<T> {
        self.outbound(Outbound {
            target,
            key,
            elements: Footprint::Range(0..0),
            order: None,
            expected: None,
        })
    }

    /// Like [`Window::slot_to`], for a slot that must have `len` elements. If it has another length, the window is not
    /// opened, and all ranks get [`WindowError::Disagreement`](crate::error::WindowError::Disagreement). Puts may still
    /// be shorter.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = SlotWindow::<f64>::new("halo");
    /// let face = window.slot_to_with_len(3, 0, 64); // rank 3 must say 64, too
    /// ```
    #[track_caller]
    pub fn slot_to_with_len(&mut self, target: usize, key: u64, len: usize) -> Out<T> {
        self.outbound(Outbound {
            target,
            key,
            elements: Footprint::Range(0..0),
            order: None,
            expected: Some(len),
        })
    }
}

impl<T> Window<T, BySlot> {
    /// Lets the window of a collective say that its elements are of type `E`, of which it sends parts.
    pub(crate) fn parts_of<E: Element>(mut self) -> Self {
        let terms = &mut self.description.terms;
        (terms.layout, terms.element) = (E::LAYOUT, std::any::type_name::<E>().into());
        self
    }

    /// Says that each call of the collective is one round, and that all data of the round is reduced at this rank.
    pub(crate) fn reduces_at_once(mut self, at_once: bool) -> Self {
        self.reduces_at_once = at_once;
        self
    }
}

/// A slot of the window of a collective: the other rank, the key, and the number of elements.
type JointSlot = (usize, u64, usize);

impl<T: Element> Window<T, BySlot> {
    /// A window that this rank does not want after all. The other ranks hear of it when they open theirs.
    pub(crate) fn refused(name: &str, joint: Joint, error: Error) -> Self {
        let mut window = Self::of_joint(name, joint, [], []);
        window.refused = Some(error);
        window
    }

    /// The window of a collective. No window that a program declares matches it.
    pub(crate) fn of_joint(
        name: &str,
        joint: Joint,
        inbound: impl IntoIterator<Item = JointSlot>,
        outbound: impl IntoIterator<Item = JointSlot>,
    ) -> Self {
        let mut window = Self::new(name).buffers(Buffers::Double);
        window.description.terms.purpose = Purpose::Collective(joint);
        for (rank, key, len) in inbound {
            window.slot_from(rank, key, len);
        }
        for (rank, key, len) in outbound {
            window.slot_to_with_len(rank, key, len);
        }
        window
    }
}

impl Window<u8, BySlot> {
    /// The window of a barrier. For each round it has an empty inbound slot from the rank that signals this one, and an
    /// outbound slot to the rank that this one signals. No window that a program declares matches it.
    pub(crate) fn of_barrier(name: &str) -> Self {
        let mut window = Self::declare(name, Buffers::Single, 0);
        window.description.terms.purpose = Purpose::Barrier;
        window
    }
}

impl<T> Window<T, ByRange> {
    /// A window of `len` elements of memory on this rank. `len` may be 0, and each rank may have another length. No
    /// other open window may have this name.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = RangeWindow::<f64>::new("matrix", 100 * 100);
    /// let row = window.range_to(0, 200..300); // row 2 of rank 0's
    /// ```
    pub fn new(name: &str, len: usize) -> Self
    where
        T: Element,
    {
        Self::declare(name, Buffers::Single, len)
    }

    /// Declares that this rank, and no other origin, accesses a range of the target's memory, and returns the handle.
    /// The range may be empty. The target then still waits for this rank's epochs, which put nothing: that is a signal
    /// without data.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = RangeWindow::<f64>::new("block", 1000);
    /// let halves = [0..500, 500..1000].map(|range| window.range_to(1, range));
    /// ```
    #[track_caller]
    pub fn range_to(&mut self, target: usize, range: Range<usize>) -> Out<T> {
        self.outbound(Outbound {
            target,
            key: 0,
            elements: Footprint::Range(range),
            order: None,
            expected: None,
        })
    }
}

impl<T> Window<T, ByRange> {
    /// Declares that this rank, and no other origin, accesses the elements of the target's memory that a layout
    /// chooses, and returns the handle. So several origins can write to one array even if their elements interleave,
    /// like the ghost faces of a block or the columns of a matrix.
    ///
    /// A put with the handle writes the elements in the order of the layout. A source of `count` elements goes to the
    /// first `count` of them, or to those from [`Out::at`] on. The source may have a layout of its own if it has as
    /// many elements as this layout. [`Out::with`] and counted puts are refused. (A layout of one run is a range: see
    /// [`Window::range_to`].)
    ///
    /// All ranks check that no two declarations for one target have an element in common. Boxes ([`Layout::subarray`])
    /// and nests of strides cost little, however large they are. For other layouts the ranks exchange and compare all
    /// runs, and a rank may declare at most 2^16 runs. A NIC that accesses the target's memory directly sends one
    /// message for each run of elements that lie side by side in source and target. If its hardware has no room for so
    /// many, [`Access::complete`](super::Access::complete) returns an error. Where NICs need staged memory,
    /// they access a copy of the elements, which lie side by side there.
    ///
    /// # Errors
    ///
    /// This call does not fail, but [`Window::open`] may. This rank gets the error if an element occurs twice in the
    /// layout, if there are too many runs, or if the layout's table is in memory of another device. The others then get
    /// [`WindowError::Disagreement`]. If the layout reaches beyond the target's memory, or if declarations overlap, all
    /// ranks get [`WindowError::Disagreement`].
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let src = Region::from_slice(&world, &[world.rank() as u64 + 1; 3])?.on(&s)?;
    /// // Each rank has a matrix of 3 x 2 elements, and puts to one column of each.
    /// let mut window = RangeWindow::<u64>::new("columns", 6);
    /// let mine = world.rank()..world.rank() + 1;
    /// let column = Layout::subarray(&[3, 2], &[0..3, mine])?;
    /// let columns = [0, 1].map(|rank| window.layout_to(rank, &column));
    /// let (inbox, outbox) = window.open(&s)?;
    ///
    /// let mut epoch = outbox.start();
    /// for to in columns {
    ///     epoch.put(&src, to)?;
    /// }
    /// let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
    /// assert_eq!(inbox.host_mut(&s)?, [1, 2, 1, 2, 1, 2]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn layout_to<D: Device>(&mut self, target: usize, layout: &Layout<D>) -> Out<T> {
        let elements = layout.footprint().unwrap_or_else(|error| {
            self.refuse(error);
            Footprint::Range(0..0)
        });
        let out = self.outbound(Outbound {
            target,
            key: 0,
            elements,
            order: layout.order(),
            expected: None,
        });
        let chosen = layout.chosen();
        // Elements of one run in another order may form a range as well.
        if chosen.shape != Shape::Linear {
            self.layouts.insert(out.index, chosen);
        }
        let outbound = self.description.outbound.iter();
        let runs: usize = outbound.map(|out| out.elements.listed()).sum();
        if runs > Footprint::MOST_RUNS {
            let (name, most) = (self.name.clone(), Footprint::MOST_RUNS);
            self.refuse(WindowError::TooManyRuns { name, runs, most }.into());
        }
        out
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }
}

impl<T> Window<T, Atomic> {
    /// A window of `len` elements of memory that origins update atomically. No other open window may have this name.
    ///
    /// Each access epoch needs a matching post of its target. So a rank cannot fetch a counter whenever it likes: all
    /// ranks do so in rounds, and need the same number of rounds. The host chooses the rank and the element of an
    /// operation when it notes the operation. A kernel cannot choose them, and each replay of a recording uses the same
    /// ones.
    ///
    /// Ranks that reach each other by NICs through [staged memory](crate::WorldOptions::staged) cannot open an atomic
    /// window: all ranks get [`WindowError::Disagreement`](crate::error::WindowError::Disagreement).
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = AtomicWindow::<u64>::new("counters", 16);
    /// let of_rank_0 = window.target(0);
    /// ```
    pub fn new(name: &str, len: usize) -> Self
    where
        T: Element,
    {
        Self::declare(name, Buffers::Single, len)
    }

    /// Declares that this rank accesses the memory of `rank`, and returns the handle. [`Out::at`] chooses the first
    /// element.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let mut window = AtomicWindow::<u64>::new("counters", 16);
    /// let of_rank_0 = window.target(0); // `of_rank_0.at(3)` is its element 3
    /// ```
    #[track_caller]
    pub fn target(&mut self, rank: usize) -> Out<T> {
        // The handle covers all of the memory. Its length is known when the target has told it.
        self.outbound(Outbound {
            target: rank,
            key: 0,
            elements: Footprint::Range(0..0),
            order: None,
            expected: None,
        })
    }
}
