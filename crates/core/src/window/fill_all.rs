//! The view of an open outbox in the kernel that completes all targets.

use std::marker::PhantomData;
use std::panic::Location;

use tidegate_hal::device::{Device, Issues, Parameters};
use tidegate_hal::memory::Ptr;

use super::fill::{LoweredOut, OutSlots, RawOut, complete_target};
use super::grants::Place;
use super::handle::Out;
use super::opened::Opened;
use super::{BySlot, Discipline, Fillable};
use crate::argument::{Argument, Lowered, OfSlots, WaitsForNobody};
use crate::element::Element;
use crate::error::{EpochError, Error, Result};
use crate::stream::Stream;

/// The outbound slots of a window, in the kernel that completes all targets: see [`Opened::last_of_all`]. The kernel
/// puts, and then [completes](AllSlots::complete) the targets, or drops this, which does the same.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed = inbox.post(s)?;
/// let opened = outbox.open(s)?;
/// let relax = move |x: &mut [u64], mut out: AllSlots<'_, u64>| {
///     out.put(to, 0, x);
///     out.complete(); // all targets have the data
///     x.fill(8); // and do not wait for this
/// };
/// s.launch(relax, (&mut src, opened.last_of_all()?))?;
/// let (mut inbox, _outbox) = (exposed, opened.complete(s)?);
/// # let mut inbox = inbox.wait(s)?;
/// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
/// # Ok(()) });
/// ```
pub struct AllSlots<'k, T: Element, K = BySlot> {
    pub(super) slots: OutSlots<'k, T, K>,
    place: Place,
}

impl<T: Element, K> AllSlots<'_, T, K> {
    /// Puts elements to a slot, as [`OutSlots::put`] does.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`AllSlots`].
    #[track_caller]
    pub fn put(&mut self, slot: Out<T>, first: usize, elements: &[T]) {
        self.slots.put(slot, first, elements);
    }

    /// Puts one element to a slot, as [`OutSlots::put_one`] does.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`AllSlots`] and [`OutSlots::put_one`].
    #[inline]
    #[track_caller]
    pub fn put_one(&mut self, slot: Out<T>, index: usize, element: T) {
        self.slots.put_one(slot, index, element);
    }

    /// Completes all targets: they may read what this kernel and those before it have put.
    ///
    /// # Examples
    ///
    /// See [`AllSlots`].
    pub fn complete(self) {}
}

impl<T: Element, K> Drop for AllSlots<'_, T, K> {
    fn drop(&mut self) {
        // The kernel has panicked. The stream fails, and poisons the targets' words.
        if std::thread::panicking() {
            return;
        }
        for lane in 0..self.place.targets {
            // SAFETY: the cell lies in the table, which lives as long as the view. `Opened::last_of_all` makes views of
            // outboxes whose targets are all mapped.
            unsafe { complete_target(self.place.cell(lane)) };
        }
    }
}

/// All slots as they are enqueued, for the kernel that completes all targets.
pub struct LoweredAll<T, K = BySlot> {
    slots: LoweredOut<T, K>,
    /// Where the kernel sees that its stream has failed.
    stop: Ptr,
}

/// `tidegate::AllSlots` of device code.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawAll {
    slots: RawOut,
    stop: Ptr,
}

const _: () = assert!(size_of::<RawAll>() == 24);

impl<T, K> LoweredAll<T, K> {
    /// The bytes of the parameter.
    pub(crate) const SIZE: usize = size_of::<RawAll>();
}

impl<T, K> Clone for LoweredAll<T, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, K> Copy for LoweredAll<T, K> {}

// SAFETY: see `view`.
unsafe impl<T: Element, K: Discipline> Lowered for LoweredAll<T, K> {
    type View<'k> = AllSlots<'k, T, K>;

    unsafe fn view<'k>(self, _: &'k dyn Issues) -> AllSlots<'k, T, K> {
        AllSlots {
            // SAFETY: the table belongs to a half, which is retired in stream order. The argument had all rights of its
            // epoch, so the kernel has no other view of the outbox.
            slots: unsafe { OutSlots::new(self.slots.place, self.slots.declaration) },
            place: self.slots.place,
        }
    }

    fn of_slots(&self) -> OfSlots {
        self.slots.of_slots()
    }

    fn push(self, parameters: &mut Parameters) {
        parameters.push(&RawAll {
            slots: self.slots.place.into(),
            stop: self.stop,
        });
    }
}

impl<T: Element, K: Discipline> WaitsForNobody for LoweredAll<T, K> {}

/// The right to complete all targets from inside a kernel, as that kernel's argument. The kernel sees [`AllSlots`]. See
/// [`Opened::last_of_all`].
///
/// If it is dropped instead, [`Opened::complete`] completes the targets.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::LastOfAll;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// # let exposed = inbox.post(s)?;
/// let opened = outbox.open(s)?;
/// let all: LastOfAll<'_, '_, u64> = opened.last_of_all()?;
/// s.launch(move |x: &[u64], mut out: AllSlots<'_, u64>| out.put(to, 0, x), (&src, all))?;
/// # let _outbox = opened.complete(s)?;
/// # let mut inbox = exposed.wait(s)?;
/// # assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
/// # Ok(()) });
/// ```
#[must_use = "launch the kernel that completes the targets with it"]
pub struct LastOfAll<'b, 's, T, D: Device, K: Discipline = BySlot> {
    lowered: LoweredAll<T, K>,
    opened: &'b Opened<'s, T, D, K>,
    launched: bool,
    marker: PhantomData<T>,
}

impl<'s, T: Element, K: Fillable, D: Device> Opened<'s, T, D, K> {
    /// The right to complete all targets, for the kernel that is launched with it: [`Opened::last`] of each target, and
    /// all slots.
    ///
    /// # Errors
    ///
    /// - [`EpochError::LastTaken`] if the right to complete a target was taken before in this epoch, and not dropped.
    /// - [`EpochError::NotByKernels`] if a NIC reaches a target.
    ///
    /// # Examples
    ///
    /// See [`AllSlots`].
    pub fn last_of_all(&self) -> Result<LastOfAll<'_, 's, T, D, K>> {
        let half = &self.held.half;
        let mut by_kernels = self.by_kernels.borrow_mut();
        if let Some(lane) = by_kernels.first() {
            return Err(Error::Epoch(EpochError::LastTaken {
                window: half.window.named(),
                rank: half.peers[*lane].rank,
            }));
        }
        let lanes = 0..half.peers.len();
        lanes
            .clone()
            .try_for_each(|lane| self.completes_by_kernel(lane))?;
        by_kernels.extend(lanes);
        Ok(LastOfAll {
            lowered: LoweredAll {
                slots: self.lowered(),
                stop: Ptr::NULL,
            },
            opened: self,
            launched: false,
            marker: PhantomData,
        })
    }
}

impl<T, K: Discipline, D: Device> Drop for LastOfAll<'_, '_, T, D, K> {
    fn drop(&mut self) {
        if !self.launched {
            self.opened.by_kernels.borrow_mut().clear();
        }
    }
}

// SAFETY: the outbox is at home on the stream. No other argument for a target of the epoch exists meanwhile.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Argument<'s, D>
    for LastOfAll<'_, 's, T, D, K>
{
    type Lowered = LoweredAll<T, K>;

    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredAll<T, K>> {
        use tidegate_hal::device::Stream as _;
        self.lowered.stop = stream.raw().reports()?.stop;
        Ok(self.lowered)
    }

    fn launched(mut self, stream: &Stream<'s, D>) {
        self.launched = true;
        let grants = self.opened.held.grants();
        for lane in 0..self.opened.held.half.peers.len() {
            stream.note_by_kernel(grants.by_kernel(lane), Location::caller());
        }
    }
}
