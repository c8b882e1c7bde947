//! The views of an open outbox that kernels get.

use std::marker::PhantomData;

use tidegate_hal::device::{Issues, Parameters};
use tidegate_hal::memory::Ptr;
use tidegate_words::{Bell, Grant, Granted, Word};

use super::grants::{Cell, OutEntry, Place};
use super::handle::Out;
use super::{BySlot, Discipline};
use crate::argument::{Lowered, OfSlots, WaitsForNobody};
use crate::element::Element;

/// The outbound slots of a window, as a kernel fills them: see [`Outbox::open`](super::Outbox::open). A kernel can put
/// to a slot, and nothing else. It never sees what a slot contains.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed = inbox.post(s)?;
/// let mut opened = outbox.open(s)?;
/// let double = move |x: &[u64], mut out: OutSlots<'_, u64>| {
///     for (index, x) in x.iter().enumerate() {
///         out.put_one(to, index, 2 * x); // straight into the target's slot
///     }
/// };
/// s.launch(double, (&src, opened.slots()))?;
/// let _outbox = opened.complete(s)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.read(s)?.slot(from), [14; 4]);
/// # Ok(()) });
/// ```
pub struct OutSlots<'k, T, K = BySlot> {
    entries: &'k [OutEntry],
    /// The number of the window's declaration.
    declaration: u64,
    marker: PhantomData<fn(T, K) -> T>,
}

impl<'k, T: Element, K> OutSlots<'k, T, K> {
    /// # Safety
    ///
    /// The table is that of an outbox of elements `T`, in memory of the host. It lives for `'k`. No other view of the
    /// outbox is used by another thread meanwhile.
    pub(super) unsafe fn new(place: Place, declaration: u64) -> Self {
        let entries = match place.slots {
            0 => &[],
            // SAFETY: the caller promises that the entries are there; they are aligned to 8 bytes.
            count => unsafe {
                std::slice::from_raw_parts(place.entries().0.cast::<OutEntry>(), count)
            },
        };
        OutSlots {
            entries,
            declaration,
            marker: PhantomData,
        }
    }

    /// The number of slots.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let mut opened = outbox.open(s)?;
    /// s.launch(|out: OutSlots<'_, u64>| assert_eq!(out.len(), 1), opened.slots())?;
    /// # let (_outbox, _inbox) = (opened.complete(s)?, exposed.wait(s)?);
    /// # s.synchronize() });
    /// ```
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no slots.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let mut opened = outbox.open(s)?;
    /// s.launch(|out: OutSlots<'_, u64>| assert!(!out.is_empty()), opened.slots())?;
    /// # let (_outbox, _inbox) = (opened.complete(s)?, exposed.wait(s)?);
    /// # s.synchronize() });
    /// ```
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of elements of a slot.
    ///
    /// # Panics
    ///
    /// If the handle belongs to another window.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let mut opened = outbox.open(s)?;
    /// s.launch(move |out: OutSlots<'_, u64>| assert_eq!(out.len_of(to), 4), opened.slots())?;
    /// # let (_outbox, _inbox) = (opened.complete(s)?, exposed.wait(s)?);
    /// # s.synchronize() });
    /// ```
    #[track_caller]
    pub fn len_of(&self, slot: Out<T>) -> usize {
        self.entry(slot).len as usize
    }

    /// Puts elements to a slot, from its element `first` on. They replace the elements of the slot; those that no
    /// kernel of the epoch puts keep the data of an earlier epoch. If two puts of an epoch name the same element, the
    /// later one counts.
    ///
    /// # Panics
    ///
    /// If the elements do not fit in the slot, if the handle belongs to another window, or if an earlier kernel has
    /// completed the slot's target ([`LastSlots::complete`]). As with every panic of a kernel, the stream fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let mut opened = outbox.open(s)?;
    /// s.launch(move |mut out: OutSlots<'_, u64>, x: &[u64]| out.put(to, 1, &x[..2]), (opened.slots(), &src))?;
    /// # let _outbox = opened.complete(s)?;
    /// # let mut inbox = exposed.wait(s)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 7, 7, 0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn put(&mut self, slot: Out<T>, first: usize, elements: &[T]) {
        let Some(at) = self.place("put to", slot, first, elements.len()) else {
            return;
        };
        // SAFETY: the elements lie within the slot. Its target is granted: it has exposed the memory to this rank
        // alone, and the epoch is not complete. The kernel has no view of that memory: a rank that puts to itself has
        // exposed this buffer, so no kernel of its stream gets a view of it.
        unsafe { std::ptr::copy_nonoverlapping(elements.as_ptr(), at, elements.len()) };
    }

    /// Puts one element to a slot.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let mut opened = outbox.open(s)?;
    /// s.launch(move |mut out: OutSlots<'_, u64>| out.put_one(to, 3, 9), opened.slots())?;
    /// # let _outbox = opened.complete(s)?;
    /// # let mut inbox = exposed.wait(s)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 0, 0, 9]);
    /// # Ok(()) });
    /// ```
    #[inline]
    #[track_caller]
    pub fn put_one(&mut self, slot: Out<T>, index: usize, element: T) {
        self.put(slot, index, &[element]);
    }

    #[track_caller]
    fn entry(&self, slot: Out<T>) -> &'k OutEntry {
        match self.entries.get(slot.index as usize) {
            Some(entry) if slot.declaration == self.declaration => entry,
            _ => foreign_slot(slot.index, self.len()),
        }
    }

    /// Where elements of a slot lie in this epoch; nothing if the stream has failed.
    #[track_caller]
    pub(super) fn place(
        &self,
        what: &str,
        slot: Out<T>,
        first: usize,
        count: usize,
    ) -> Option<*mut T> {
        let entry = self.entry(slot);
        let len = entry.len as usize;
        if first > len || count > len - first {
            beyond(what, slot.index, first, count, len);
        }
        // SAFETY: the grant lies in the block of the table, and is only ever accessed atomically.
        match unsafe { &*entry.grant.0.cast::<Grant>() }.look() {
            Granted::Yes => {}
            Granted::No => complete(what, slot.index),
            Granted::Failed => return None,
        }
        // SAFETY: the operand lies in the window's block, which lives as long as the table.
        let epoch = unsafe { &*entry.operand.0.cast::<Word>() }.epoch();
        let flip = if epoch & 1 == 1 {
            entry.flip as usize
        } else {
            0
        };
        let at = entry.base.byte_add(flip + first * size_of::<T>());
        Some(at.0.cast())
    }
}

/// The outbound slots to one target, in the kernel that completes it: see [`Opened::last`](super::Opened::last). The
/// kernel puts, and then [completes](LastSlots::complete) the target, or drops this, which does the same. The target
/// may go on at once, while the kernel still computes.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed = inbox.post(s)?;
/// let opened = outbox.open(s)?;
/// let relax = move |x: &mut [u64], mut out: LastSlots<'_, u64>| {
///     out.put(to, 0, x);
///     out.complete(); // the target has the data
///     x.fill(8); // and does not wait for this
/// };
/// let last = opened.last(1 - s.world().rank())?;
/// s.launch(relax, (&mut src, last))?;
/// let _outbox = opened.complete(s)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
/// # Ok(()) });
/// ```
pub struct LastSlots<'k, T: Element, K = BySlot> {
    slots: OutSlots<'k, T, K>,
    /// The target's cell in the table.
    cell: Ptr,
}

/// Completes the target of a cell, if it is granted.
///
/// # Safety
///
/// The cell is that of a mapped target, in memory of the host. It lives, and so do the blocks that it names.
pub(super) unsafe fn complete_target(cell: Ptr) {
    // SAFETY: the caller's promise. The words of the grant are only ever accessed atomically, and nobody writes the
    // other fields.
    let cell = unsafe { &*cell.0.cast::<Cell>() };
    // SAFETY: the word and the bell lie in blocks of the target that the half holds. Both are only ever accessed
    // atomically.
    let (done, bell) = unsafe { (&*cell.done.0.cast::<Word>(), &*cell.bell.0.cast::<Bell>()) };
    // A kernel of a host stream does not run if the stream has failed. The item behind it poisons the word.
    cell.grant.complete(done, bell);
}

impl<'k, T: Element, K> LastSlots<'k, T, K> {
    /// Puts elements to a slot of this target, as [`OutSlots::put`] does.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`], and if it is a slot of another target.
    ///
    /// # Examples
    ///
    /// See [`LastSlots`].
    #[track_caller]
    pub fn put(&mut self, slot: Out<T>, first: usize, elements: &[T]) {
        self.of_target(slot);
        self.slots.put(slot, first, elements);
    }

    /// Puts one element to a slot of this target, as [`OutSlots::put_one`] does.
    ///
    /// # Panics
    ///
    /// As [`LastSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`LastSlots`] and [`OutSlots::put_one`].
    #[inline]
    #[track_caller]
    pub fn put_one(&mut self, slot: Out<T>, index: usize, element: T) {
        self.put(slot, index, &[element]);
    }

    /// Completes the target: it may read what this kernel and those before it have put.
    ///
    /// # Examples
    ///
    /// See [`LastSlots`].
    pub fn complete(self) {}

    /// The slots, of which `slot` is one of this target.
    #[track_caller]
    pub(super) fn of_target(&self, slot: Out<T>) -> &OutSlots<'k, T, K> {
        if self.slots.entry(slot).grant != self.cell {
            other_target(slot.index);
        }
        &self.slots
    }
}

impl<T: Element, K> Drop for LastSlots<'_, T, K> {
    fn drop(&mut self) {
        // The kernel has panicked. The stream fails, and poisons the target's word.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: the cell lies in the table, which lives as long as the view. `Opened::last` makes views of mapped
        // targets only.
        unsafe { complete_target(self.cell) };
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn foreign_slot(index: u32, slots: usize) -> ! {
    let plural = if slots == 1 { "" } else { "s" };
    panic!(
        "the handle of outbound slot {index} belongs to another window: this one has {slots} outbound slot{plural}"
    )
}

#[cold]
#[inline(never)]
#[track_caller]
fn beyond(what: &str, index: u32, first: usize, count: usize, len: usize) -> ! {
    panic!(
        "a {what} outbound slot {index} beyond its end: {count} elements from element {first} on, of {len}"
    )
}

#[cold]
#[inline(never)]
#[track_caller]
fn complete(what: &str, index: u32) -> ! {
    panic!("a {what} outbound slot {index}, whose target a kernel has completed")
}

#[cold]
#[inline(never)]
#[track_caller]
fn other_target(index: u32) -> ! {
    panic!(
        "outbound slot {index} belongs to another target than the one that this kernel completes"
    )
}

/// The slots of an open outbox as they are enqueued.
pub struct LoweredOut<T, K = BySlot> {
    pub(super) place: Place,
    pub(super) declaration: u64,
    pub(super) marker: PhantomData<fn(T, K) -> T>,
}

/// The slots to one target as they are enqueued, for the kernel that completes it.
pub struct LoweredLast<T, K = BySlot> {
    pub(super) slots: LoweredOut<T, K>,
    pub(super) cell: Ptr,
    /// Where the kernel sees that its stream has failed.
    pub(super) stop: Ptr,
}

impl<T, K> Clone for LoweredOut<T, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, K> Copy for LoweredOut<T, K> {}

impl<T, K> Clone for LoweredLast<T, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, K> Copy for LoweredLast<T, K> {}

// SAFETY: see `view`.
unsafe impl<T: Element, K: Discipline> Lowered for LoweredOut<T, K> {
    type View<'k> = OutSlots<'k, T, K>;

    unsafe fn view<'k>(self, _: &'k dyn Issues) -> OutSlots<'k, T, K> {
        // SAFETY: the table belongs to a half, which is retired in stream order. The argument was borrowed exclusively,
        // so the kernel has no other view of the outbox.
        unsafe { OutSlots::new(self.place, self.declaration) }
    }

    fn of_slots(&self) -> OfSlots {
        OfSlots::OutTable(self.declaration)
    }

    fn push(self, parameters: &mut Parameters) {
        parameters.push(&RawOut::from(self.place));
    }
}

impl<T: Element, K: Discipline> WaitsForNobody for LoweredOut<T, K> {}

/// `tidegate::OutSlots` of device code.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawOut {
    head: Ptr,
    slots: u32,
    targets: u32,
}

/// `tidegate::LastSlots` of device code.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawLast {
    slots: RawOut,
    cell: Ptr,
    stop: Ptr,
}

impl<T, K> LoweredOut<T, K> {
    /// The bytes of the parameter.
    pub(crate) const SIZE: usize = size_of::<RawOut>();
}

impl<T, K> LoweredLast<T, K> {
    /// The bytes of the parameter.
    pub(crate) const SIZE: usize = size_of::<RawLast>();
}

const _: () = assert!(size_of::<RawOut>() == 16 && size_of::<RawLast>() == 32);

impl From<Place> for RawOut {
    fn from(place: Place) -> Self {
        // A window has fewer than 2^32 slots, and so fewer targets.
        RawOut {
            head: place.head,
            slots: place.slots as u32,
            targets: place.targets as u32,
        }
    }
}

// SAFETY: see `view`.
unsafe impl<T: Element, K: Discipline> Lowered for LoweredLast<T, K> {
    type View<'k> = LastSlots<'k, T, K>;

    unsafe fn view<'k>(self, _: &'k dyn Issues) -> LastSlots<'k, T, K> {
        LastSlots {
            // SAFETY: as above. Other views of the kernel are for other targets, so they reach none of these slots.
            slots: unsafe { OutSlots::new(self.slots.place, self.slots.declaration) },
            cell: self.cell,
        }
    }

    fn of_slots(&self) -> OfSlots {
        OfSlots::OutTable(self.slots.declaration)
    }

    fn push(self, parameters: &mut Parameters) {
        parameters.push(&RawLast {
            slots: self.slots.place.into(),
            cell: self.cell,
            stop: self.stop,
        });
    }
}

impl<T: Element, K: Discipline> WaitsForNobody for LoweredLast<T, K> {}
