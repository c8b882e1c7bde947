//! The views of an inbox that kernels and the host get.

use std::marker::PhantomData;
use std::ops::Index;

use tidegate_hal::batch::{Shape, Side};
use tidegate_hal::device::{Device, Issues, Parameters};
use tidegate_hal::memory::{Block, Ptr, Sharing};
use tidegate_words::{Word, ahead};

use super::handle::In;
use crate::argument::{Lowered, OfSlots, WaitsForNobody};
use crate::bytes::{bytes_of, no_padding};
use crate::element::Element;
use crate::error::Result;

/// Where an inbox's memory lies.
pub(super) struct Table<D: Device> {
    /// The slots, in the order of their declaration: [`SlotEntry`]s in memory of the device, where kernels read them.
    /// `None` if there are no slots.
    entries: Option<D::Block>,
    /// The same entries, for the host.
    slots: Box<[SlotEntry]>,
    /// The memory of a window by range, or of an atomic one.
    pub(super) memory: Ptr,
    pub(super) len: usize,
}

/// An inbound slot, as kernels of any device read it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SlotEntry {
    pub(super) base: Ptr,
    /// The number of elements.
    pub(super) len: u64,
    /// The distance in bytes from the buffer of even epochs to that of odd ones, or 0 if there is one buffer.
    pub(super) flip: u64,
    /// The operand of the wait for the origin. It counts the epochs that have come.
    pub(super) operand: Ptr,
}

no_padding!(SlotEntry: base len flip operand);

impl<D: Device> Table<D> {
    /// A table of these slots.
    pub(super) fn new(device: &D, entries: &[SlotEntry], memory: Ptr, len: usize) -> Result<Self> {
        let block = match size_of_val(entries) {
            0 => None,
            bytes => {
                let block = device.alloc(bytes, Sharing::Private)?;
                // SAFETY: the block has just been allocated with this size.
                unsafe { device.write(block.base(), bytes_of(entries)) }?;
                Some(block)
            }
        };
        Ok(Table {
            entries: block,
            slots: entries.into(),
            memory,
            len,
        })
    }

    /// The address and the number of the entries.
    pub(super) fn slots(&self) -> (Ptr, usize) {
        let entries = self.entries.as_ref().map_or(Ptr::NULL, Block::base);
        (entries, self.slots.len())
    }

    /// A slot as a side of a move, and the parity of that move.
    pub(super) fn side(&self, index: usize) -> (Side, Ptr) {
        let slot = &self.slots[index];
        let side = Side {
            base: slot.base,
            flip: slot.flip as usize,
            shape: Shape::Linear,
        };
        let parity = if slot.flip == 0 {
            Ptr::NULL
        } else {
            slot.operand
        };
        (side, parity)
    }
}

impl SlotEntry {
    fn current(&self) -> Ptr {
        if self.flip == 0 {
            return self.base;
        }
        // SAFETY: the operand lies in the window's block, which lives as long as the table. This is called only if both
        // lie in memory of the host.
        let epoch = unsafe { &*self.operand.0.cast::<Word>() }.epoch();
        // Before the first epoch this is `u64::MAX`, which is odd. The even buffer is exposed from the start, so an
        // origin may be writing it.
        if epoch & 1 == 1 {
            self.base.byte_add(self.flip as usize)
        } else {
            self.base
        }
    }
}

/// The inbound slots of a window after the last wait: the data that each origin put in its last epoch.
///
/// **A slot that the origin skipped is not empty.** It keeps the data from two epochs ago (from the last epoch, with
/// [`Buffers::Single`](super::Buffers)), or zeros at first. The reader cannot see how much came. So if messages vary,
/// the origin must put a header in *every* epoch that says how much follows, even if that is nothing. If it writes `if
/// n > 0 { epoch.put(…)? }`, the target reads an old message again. `tidegate::guide::messages` shows all ways to do
/// it.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// epoch.put(&src, to)?;
/// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
/// let add = move |slots: Slots<'_, u64>, src: &mut [u64]| src[0] += slots[from][0];
/// s.launch(add, (inbox.view(), &mut src))?; // in a kernel
/// let slots: Slots<'_, u64> = inbox.read(s)?; // on the host
/// assert_eq!((slots.len(), slots[from][0]), (1, 7));
/// # Ok(()) });
/// ```
pub struct Slots<'k, T> {
    entries: &'k [SlotEntry],
    /// The number of the window's declaration.
    declaration: u64,
    marker: PhantomData<&'k [T]>,
}

impl<T> Clone for Slots<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slots<'_, T> {}

impl<'k, T: Element> Slots<'k, T> {
    /// # Safety
    ///
    /// `entries` and `count` are what [`Table::slots`] returns for an inbox of elements `T`. The inbox is not exposed,
    /// and stays so for `'k`. What its stream waited for has come. The entries and the slots lie in memory of the host.
    /// `declaration` is the number of the window's declaration.
    pub(super) unsafe fn new((entries, count): (Ptr, usize), declaration: u64) -> Self {
        let entries = if count == 0 {
            &[]
        } else {
            // SAFETY: the caller promises that the entries are there; blocks are aligned.
            unsafe { std::slice::from_raw_parts(entries.0.cast::<SlotEntry>(), count) }
        };
        Slots {
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
    /// let mut inbox = inbox;
    /// assert_eq!(inbox.read(s)?.len(), 1); // one slot, which has 4 elements
    /// # Ok(()) });
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
    /// let mut inbox = inbox;
    /// assert!(!inbox.read(s)?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The slot of a handle; `slots[handle]` is the same. Elements that the origin did not put in the last epoch keep
    /// older data: see [`Slots`].
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
    /// # let mut epoch = outbox.start();
    /// # epoch.put(&src, to)?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    #[inline]
    #[track_caller]
    pub fn slot(&self, slot: In<T>) -> &'k [T] {
        match self.entries.get(slot.index as usize) {
            Some(entry) if slot.declaration == self.declaration => self.memory(entry),
            // Only a wait that was stopped shows no slots of its own window. A panic of the guard that looks at them
            // would end the process, because its kernel unwinds already.
            None if slot.declaration == self.declaration => &[],
            _ => foreign_slot(slot.index, self.len()),
        }
    }

    /// All slots, in the order of their declaration.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let (mut inbox, _outbox) = exchange(s, inbox, outbox.start())?;
    /// let most = inbox.read(s)?.iter().flatten().max().copied();
    /// assert_eq!(most, Some(0));
    /// # Ok(()) });
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'k [T]> + use<'k, T> {
        let slots = *self;
        self.entries.iter().map(move |entry| slots.memory(entry))
    }

    fn memory(&self, entry: &SlotEntry) -> &'k [T] {
        // SAFETY: the buffer has `len` elements, for which all bytes are valid, and is aligned to a cache line. While
        // the inbox is not exposed, no origin writes this buffer. (With two buffers, an origin may write the other
        // one.) See also `Slots::new`.
        unsafe { std::slice::from_raw_parts(entry.current().0.cast::<T>(), entry.len as usize) }
    }
}

impl<T: Element> Index<In<T>> for Slots<'_, T> {
    type Output = [T];

    #[track_caller]
    fn index(&self, slot: In<T>) -> &[T] {
        self.slot(slot)
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn foreign_slot(index: u32, slots: usize) -> ! {
    let plural = if slots == 1 { "" } else { "s" };
    panic!(
        "the handle of inbound slot {index} belongs to another window: this one has {slots} inbound slot{plural}"
    )
}

/// The slots of an inbox as they are enqueued, before the kernel sees them.
pub struct LoweredSlots<T> {
    pub(super) slots: (Ptr, usize),
    pub(super) declaration: u64,
    pub(super) marker: PhantomData<T>,
}

impl<T> Clone for LoweredSlots<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for LoweredSlots<T> {}

// SAFETY: see `view`.
unsafe impl<T: Element> Lowered for LoweredSlots<T> {
    type View<'k> = Slots<'k, T>;

    unsafe fn view<'k>(self, _: &'k dyn Issues) -> Slots<'k, T> {
        // SAFETY: the table belongs to a half, which is retired in stream order. The inbox was not exposed when the
        // kernel was enqueued, and a later post comes later in stream order, too.
        let slots = unsafe { Slots::new(self.slots, self.declaration) };
        let entries = slots.entries.iter();
        ahead::fetch(entries.map(|slot| {
            (
                slot.current().0.cast_const(),
                slot.len as usize * size_of::<T>(),
            )
        }));
        slots
    }

    fn of_slots(&self) -> OfSlots {
        OfSlots::Table(self.declaration)
    }

    fn push(self, parameters: &mut Parameters) {
        parameters.push(&self.slots.0);
        parameters.push(&(self.slots.1 as u64));
    }
}

impl<T: Element> WaitsForNobody for LoweredSlots<T> {}

impl<T> std::fmt::Debug for Slots<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lengths: Vec<_> = self.entries.iter().map(|entry| entry.len).collect();
        f.debug_struct("Slots")
            .field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("lengths", &lengths)
            .finish()
    }
}
