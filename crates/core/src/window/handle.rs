//! Handles: what a window's declaration returns for its slots and ranges.

use std::fmt;
use std::hash::{Hash, Hasher};

use tidegate_hal::device::{Device, Issues, Parameters};

use crate::argument::{Argument, Lowered, OfSlots, WaitsForNobody};
use crate::carry::{Carry, Visitor};
use crate::element::Element;
use crate::error::Result;
use crate::layout::Layout;
use crate::place::Of;
use crate::stream::Stream;

/// An inbound slot of a window, returned by [`slot_from`](super::Window::slot_from).
///
/// It is plain data: copy it, keep it in structs, capture it in kernels. [`Slots::slot`](super::Slots::slot) takes it.
///
/// A handle can also be an argument of a kernel. A closure gets the handle. Device code gets its number, as a `u32`,
/// and looks it up in the table of the slots that stand before it among the arguments, or of the first ones behind it
/// if none stand before. If the handle belongs to another window than those slots, the launch of device code is refused
/// ([`KernelError::ForeignSlot`](crate::error::KernelError::ForeignSlot)).
///
/// A handle works only with the window that was declared with it. A window of the same name and type, or the same
/// window on another rank, refuses it.
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// # let peer = 1 - world.rank();
/// let mut window = SlotWindow::<f64>::new("pair");
/// let came: [In<f64>; 2] = [0, 1].map(|key| window.slot_from(peer, key, 3));
/// let [one, _two] = [0, 1].map(|key| window.slot_to(peer, key));
/// let (inbox, outbox) = window.open(&s)?;
/// # let src = Region::from_slice(&world, &[1.0, 2.0, 3.0])?.on(&s)?;
/// # let mut sum = Region::<f64>::zeroed(&world, 1)?.on(&s)?;
/// let mut epoch = outbox.start();
/// epoch.put(&src, one)?;
/// let (inbox, _outbox) = exchange(&s, inbox, epoch)?;
///
/// let add = |slots: Slots<'_, f64>, slot: In<f64>, sum: &mut [f64]| sum[0] += slots[slot].iter().sum::<f64>();
/// for slot in came {
///     s.launch(add, (inbox.view(), slot, &mut sum))?;
/// }
/// assert_eq!(sum.into_host(&s)?[0], 6.0);
/// # Ok(()) });
/// ```
pub struct In<T> {
    pub(super) declaration: u64,
    pub(super) index: u32,
    of: Of<T>,
}

/// An outbound slot: memory of a target that this rank may access. [`slot_to`](super::Window::slot_to),
/// [`range_to`](super::Window::range_to), [`layout_to`](super::Window::layout_to) and [`target`](super::Window::target)
/// return it.
///
/// It is plain data, like [`In`], and works with its own window only. It can be an argument of a kernel, too, beside the
/// slots of the same window's open outbox. [`Access::put`](super::Access::put) and the other
/// operations take the handle itself, a later element of its slot ([`Out::at`]), or the elements that a layout chooses
/// ([`Out::with`]). [`Access::take`](super::Access::take) turns it into a handle that can be used only once.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let to: Out<u64> = to;
/// let mut epoch = outbox.start();
/// epoch.put(src.slice(0..1)?, to)?; // from the slot's first element on
/// epoch.put(src.slice(1..3)?, to.at(1))?; // from its second one on
/// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
/// # Ok(()) });
/// ```
pub struct Out<T> {
    pub(super) declaration: u64,
    pub(super) index: u32,
    of: Of<T>,
}

/// An [`Out`] for one operation of one epoch, returned by [`Access::take`](super::Access::take).
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// let [once] = epoch.take([to])?;
/// epoch.put(&src, once)?; // `once` is moved: the slot is not put twice
/// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
/// # Ok(()) });
/// ```
pub struct OutOnce<T> {
    out: Out<T>,
    epoch: u64,
}

/// The destination of an operation: a slot, from its first element on, or from the element that [`Dest::at`] names.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::window::Dest;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let second_half: Dest<'_, u64, Host> = to.at(2);
/// let mut epoch = outbox.start();
/// epoch.put(src.slice(0..2)?, second_half)?;
/// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
/// assert_eq!(inbox.read(s)?.slot(from), [0, 0, 7, 7]);
/// # Ok(()) });
/// ```
pub struct Dest<'b, T, D: Device> {
    pub(super) declaration: u64,
    pub(super) edge: u32,
    pub(super) first: usize,
    /// The only epoch in which it may be used, or 0 for all epochs.
    pub(super) epoch: u64,
    pub(super) layout: Option<&'b Layout<D>>,
    of: Of<T>,
}

macro_rules! handle {
    ($handle:ident) => {
        impl<T> $handle<T> {
            /// The handle of a slot. `declaration` is the number of the window's declaration, which no other
            /// declaration in the process has.
            pub(super) fn new(declaration: u64, index: usize) -> Self {
                $handle {
                    declaration,
                    index: u32::try_from(index).expect("a window has fewer than 2^32 slots"),
                    of: Of::default(),
                }
            }

            /// The number of the slot among those of its kind, from 0, in the order of declaration. Use it for tables
            /// that the program keeps, and for device code.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
            /// assert_eq!((from.index(), to.index()), (0, 0)); // the first of each kind
            /// # Ok(()) });
            /// ```
            pub fn index(self) -> u32 {
                self.index
            }
        }

        impl<T> Clone for $handle<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $handle<T> {}

        impl<T> PartialEq for $handle<T> {
            fn eq(&self, other: &Self) -> bool {
                (self.declaration, self.index) == (other.declaration, other.index)
            }
        }

        impl<T> Eq for $handle<T> {}

        impl<T> Hash for $handle<T> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                (self.declaration, self.index).hash(state);
            }
        }

        impl<T> fmt::Debug for $handle<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($handle))
                    .field("declaration", &self.declaration)
                    .field("index", &self.index)
                    .finish()
            }
        }

        // SAFETY: a handle has no leaf and no brand.
        unsafe impl<'s, T: 'static, D: Device> Carry<'s, D> for $handle<T> {
            type At<'t> = $handle<T>;

            fn visit(&mut self, _visitor: &mut Visitor<'_, D>) {}
        }
    };
}
handle!(In);
handle!(Out);

impl<T> Out<T> {
    /// The slot (or range) from element `first` on.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// epoch.put(src.slice(0..1)?, to.at(3))?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 0, 0, 7]);
    /// # Ok(()) });
    /// ```
    pub fn at<'b, D: Device>(self, first: usize) -> Dest<'b, T, D> {
        Dest::from(self).at(first)
    }

    /// The elements of the slot (or range) that a layout chooses.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let even = Layout::strided(0, &[(2, 2)])?;
    /// let mut epoch = outbox.start();
    /// epoch.put(src.slice(0..2)?, to.with(&even))?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7, 0, 7, 0]);
    /// # Ok(()) });
    /// ```
    pub fn with<D: Device>(self, layout: &Layout<D>) -> Dest<'_, T, D> {
        Dest::from(self).with(layout)
    }

    pub(super) fn once(self, epoch: u64) -> OutOnce<T> {
        OutOnce { out: self, epoch }
    }
}

impl<T> OutOnce<T> {
    /// Like [`Out::at`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// let [once] = epoch.take([to])?;
    /// epoch.put(src.slice(0..1)?, once.at(3))?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 0, 0, 7]);
    /// # Ok(()) });
    /// ```
    pub fn at<'b, D: Device>(self, first: usize) -> Dest<'b, T, D> {
        Dest::from(self).at(first)
    }

    /// Like [`Out::with`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let even = Layout::strided(0, &[(2, 2)])?;
    /// let mut epoch = outbox.start();
    /// let [once] = epoch.take([to])?;
    /// epoch.put(src.slice(0..2)?, once.with(&even))?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7, 0, 7, 0]);
    /// # Ok(()) });
    /// ```
    pub fn with<D: Device>(self, layout: &Layout<D>) -> Dest<'_, T, D> {
        Dest::from(self).with(layout)
    }
}

impl<T> fmt::Debug for OutOnce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutOnce")
            .field("out", &self.out)
            .field("epoch", &self.epoch)
            .finish()
    }
}

impl<'b, T, D: Device> Dest<'b, T, D> {
    /// The same slot (or range), from element `first` on. It replaces the element that an earlier call named.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let even = Layout::strided(0, &[(2, 2)])?;
    /// let mut epoch = outbox.start();
    /// epoch.put(src.slice(0..2)?, to.with(&even).at(1))?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 7, 0, 7]);
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn at(mut self, first: usize) -> Self {
        self.first = first;
        self
    }

    /// The elements of the slot that a layout chooses. The layout counts from the element that [`Dest::at`] names.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let even = Layout::strided(0, &[(2, 2)])?;
    /// let mut epoch = outbox.start();
    /// epoch.put(src.slice(0..2)?, to.at(1).with(&even))?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 7, 0, 7]);
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn with(mut self, layout: &'b Layout<D>) -> Self {
        self.layout = Some(layout);
        self
    }
}

/// The destination of an operation on a window of elements `T`: an [`Out`], an [`OutOnce`], or a [`Dest`], which their
/// methods `at` and `with` return.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::window::{IntoDest, IntoSource};
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// /// Puts to a slot, or to a part of it.
/// fn put<'s, 'b>(
///     epoch: &mut Access<'s, 'b, u64>,
///     src: impl IntoSource<'b, 's, u64, Host>,
///     dest: impl IntoDest<'b, u64, Host>,
/// ) -> Result<()> {
///     epoch.put(src, dest)
/// }
/// let mut epoch = outbox.start();
/// put(&mut epoch, src.slice(0..2)?, to.at(2))?;
/// # let _halves = exchange(s, inbox, epoch)?;
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a destination for an operation on elements `{T}`",
    label = "not an `Out<{T}>`",
    note = "pass the `Out` that `slot_to`, `range_to`, `layout_to` or `target` of the window's declaration returned, or `out.at(element)` for a later element"
)]
pub trait IntoDest<'b, T, D: Device>: Into<Dest<'b, T, D>> {}

impl<'b, T, D: Device> IntoDest<'b, T, D> for Out<T> {}
impl<'b, T, D: Device> IntoDest<'b, T, D> for OutOnce<T> {}
impl<'b, T, D: Device> IntoDest<'b, T, D> for Dest<'b, T, D> {}

impl<T, D: Device> From<Out<T>> for Dest<'_, T, D> {
    #[inline]
    fn from(out: Out<T>) -> Self {
        Dest {
            declaration: out.declaration,
            edge: out.index,
            first: 0,
            epoch: 0,
            layout: None,
            of: out.of,
        }
    }
}

impl<T, D: Device> From<OutOnce<T>> for Dest<'_, T, D> {
    #[inline]
    fn from(once: OutOnce<T>) -> Self {
        Dest {
            epoch: once.epoch,
            ..Dest::from(once.out)
        }
    }
}

macro_rules! argument {
    ($handle:ident, $of_slots:ident) => {
        // SAFETY: a handle names no memory.
        unsafe impl<T: Element> Lowered for $handle<T> {
            type View<'k> = $handle<T>;

            unsafe fn view<'k>(self, _: &'k dyn Issues) -> Self::View<'k> {
                self
            }

            fn of_slots(&self) -> OfSlots {
                OfSlots::$of_slots(self.declaration, self.index)
            }

            fn push(self, parameters: &mut Parameters) {
                parameters.push(&self.index);
            }
        }

        impl<T: Element> WaitsForNobody for $handle<T> {}

        // SAFETY: a handle names no memory.
        unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for $handle<T> {
            type Lowered = $handle<T>;

            fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<$handle<T>> {
                Ok(*self)
            }
        }
    };
}
argument!(In, Handle);
argument!(Out, OutHandle);
