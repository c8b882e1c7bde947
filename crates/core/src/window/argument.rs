//! An inbox as the argument of a kernel.

use std::marker::PhantomData;

use tidegate_hal::batch::Side;
use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;

use super::handle::In;
use super::inbox::Inbox;
use super::view::LoweredSlots;
#[cfg(doc)]
use super::view::Slots;
use super::{Atomic, ByRange, BySlot};
use crate::argument::{Argument, LoweredExclusive, LoweredShared};
use crate::element::Element;
use crate::error::Result;
use crate::stream::Stream;

/// An inbox as a kernel's argument. The kernel sees [`Slots`]. See [`Inbox::view`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let (inbox, _outbox) = exchange(s, inbox, outbox.start())?;
/// # let mut sum = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
/// let add = move |inbox: Slots<'_, u64>, sum: &mut [u64]| sum[0] = inbox[from].iter().sum();
/// s.launch(add, (inbox.view(), &mut sum))?;
/// # Ok(()) });
/// ```
pub struct InboxView<'b, 's, T, D: Device> {
    slots: (Ptr, usize),
    declaration: u64,
    marker: PhantomData<(&'b Inbox<'s, T, D, BySlot>, T)>,
}

/// The memory of an inbox by range (or atomic) as a kernel's argument. The kernel sees `&[T]`. See [`Inbox::memory`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// let (inbox, _outbox) = exchange(s, inbox, outbox.start())?;
/// # let mut sum = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
/// let add = |memory: &[u64], sum: &mut [u64]| sum[0] = memory.iter().sum();
/// s.launch(add, (inbox.memory(), &mut sum))?;
/// # Ok(()) });
/// ```
pub struct Memory<'b, 's, T, D: Device> {
    ptr: Ptr,
    len: usize,
    marker: PhantomData<(&'b T, &'s D, crate::place::Brand<'s>)>,
}

/// The memory of an inbox by range (or atomic) as a kernel's argument. The kernel sees `&mut [T]`. See
/// [`Inbox::memory_mut`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// let (mut inbox, _outbox) = exchange(s, inbox, outbox.start())?;
/// s.launch(|memory: &mut [u64]| memory.fill(3), inbox.memory_mut())?;
/// assert_eq!(inbox.host_mut(s)?, [3; 8]);
/// # Ok(()) });
/// ```
pub struct MemoryMut<'b, 's, T, D: Device>(Memory<'b, 's, T, D>, PhantomData<&'b mut T>);

impl<'s, T: Element, D: Device> Inbox<'s, T, D, BySlot> {
    /// The handles of all inbound slots, in the order of their declaration.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// for slot in inbox.slots() {
    ///     println!("inbound slot {}", slot.index());
    /// }
    /// assert!(inbox.slots().eq([from]));
    /// # Ok(()) });
    /// ```
    pub fn slots(&self) -> impl ExactSizeIterator<Item = In<T>> + use<'s, T, D> {
        let declaration = self.half().declaration;
        let each = move |index| In::new(declaration, index);
        (0..self.table().slots().1).map(each)
    }

    /// The inbox as an argument of a kernel on its stream. The kernel sees [`Slots`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let (inbox, _outbox) = exchange(s, inbox, outbox.start())?;
    /// s.launch(move |came: Slots<'_, u64>| assert_eq!(came[from].len(), 4), inbox.view())?;
    /// # Ok(()) });
    /// ```
    pub fn view(&self) -> InboxView<'_, 's, T, D> {
        InboxView {
            slots: self.table().slots(),
            declaration: self.half().declaration,
            marker: PhantomData,
        }
    }

    /// A slot as the moves of the inbox's stream find it, and as views do: the operand is the move's parity. It tells
    /// which buffer the last epoch used at the time of the move.
    pub(crate) fn side(&self, slot: usize) -> (Side, Ptr) {
        self.table().side(slot)
    }
}

macro_rules! memory_of {
    ($kind:ty) => {
        impl<'s, T: Element, D: Device> Inbox<'s, T, D, $kind> {
            /// The memory as an argument of a kernel on the inbox's stream. The kernel sees `&[T]`.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
            /// s.launch(|memory: &[u64]| assert_eq!(memory.len(), 8), inbox.memory())?;
            /// # Ok(()) });
            /// ```
            pub fn memory(&self) -> Memory<'_, 's, T, D> {
                Memory {
                    ptr: self.table().memory,
                    len: self.table().len,
                    marker: PhantomData,
                }
            }

            /// The memory as an argument of a kernel on the inbox's stream. The kernel sees `&mut [T]`.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
            /// let mut inbox = inbox;
            /// s.launch(|memory: &mut [u64]| memory[7] = 1, inbox.memory_mut())?;
            /// assert_eq!(inbox.host_mut(s)?[7], 1);
            /// # Ok(()) });
            /// ```
            pub fn memory_mut(&mut self) -> MemoryMut<'_, 's, T, D> {
                let memory = Memory {
                    ptr: self.table().memory,
                    len: self.table().len,
                    marker: PhantomData,
                };
                MemoryMut(memory, PhantomData)
            }
        }
    };
}
memory_of!(ByRange);
memory_of!(Atomic);

// SAFETY: the inbox is at home on the stream. The view is shared, and so is the borrow of the inbox.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for InboxView<'_, 's, T, D> {
    type Lowered = LoweredSlots<T>;
    fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<LoweredSlots<T>> {
        Ok(LoweredSlots {
            slots: self.slots,
            declaration: self.declaration,
            marker: PhantomData,
        })
    }
}

// SAFETY: the inbox is at home on the stream. The view is shared, and so is the borrow of the inbox.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for Memory<'_, 's, T, D> {
    type Lowered = LoweredShared<T>;
    fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<LoweredShared<T>> {
        Ok(LoweredShared::new(self.ptr, self.len))
    }
}

// SAFETY: the inbox is at home on the stream. The view is exclusive, and so is the borrow of the inbox.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for MemoryMut<'_, 's, T, D> {
    type Lowered = LoweredExclusive<T>;
    fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<LoweredExclusive<T>> {
        Ok(LoweredExclusive::new(self.0.ptr, self.0.len))
    }
}
