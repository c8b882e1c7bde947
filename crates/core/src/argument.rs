//! The arguments of kernels, and the views that kernels get.

use std::marker::PhantomData;
use std::panic::Location;

use tidegate_hal::device::{Device, Issues, Parameters};
use tidegate_hal::memory::Ptr;

use crate::element::Element;
use crate::error::{KernelError, Result};
use crate::nic::Touch;
use crate::place::On;
use crate::region::Region;
use crate::stream::Stream;

/// An argument of a kernel on stream `'s`.
///
/// # Safety
///
/// The lowered argument may be viewed by work of stream `'s`, in stream order. Two arguments that exist at the same
/// time must not be lowered to views of the same memory, unless both are shared.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::kernel::{Argument, Kernel};
///
/// # tidegate::doc::stream(|world, s| {
/// /// Launches a kernel, and waits for it.
/// fn now<'s, K: Kernel<'s, Host, (A,)>, A: Argument<'s, Host>>(s: &Stream<'s>, kernel: K, argument: A) -> Result<()> {
///     s.launch(kernel, (argument,))?;
///     s.synchronize()
/// }
/// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
/// now(s, |x: &mut [f64]| x[0] += 1.0, &mut x)?;
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a kernel on this stream",
    note = "kernels take `&region`, `&mut region` (`Region<T, On<'s>>`, or a `Part`), `inbox.view()`, or a tuple of them and of numbers of a fixed size: `u64` instead of `usize`, `u8` instead of `bool`"
)]
pub unsafe trait Argument<'s, D: Device> {
    /// The form in which it is enqueued.
    type Lowered: Lowered;
    /// Lowers the argument for a kernel that is about to be enqueued on `stream`. First it enqueues the wait for
    /// everything that conflicts with the kernel's use of the argument, such as a NIC's reads of a region that the
    /// kernel will write.
    ///
    /// # Errors
    ///
    /// If the device refuses. A half that is lent has more errors: see [`Inbox::lend`](crate::window::Inbox::lend).
    #[track_caller]
    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<Self::Lowered>;

    /// Notes that the kernel has been enqueued, or a part of a foreign function's work. If a launch is refused, its
    /// arguments are dropped instead.
    #[doc(hidden)]
    #[track_caller]
    fn launched(self, _stream: &Stream<'s, D>)
    where
        Self: Sized,
    {
    }
}

/// An argument in the queue: addresses and numbers.
///
/// # Safety
///
/// `view` may be called while the kernel runs on the stream that the argument came from.
pub unsafe trait Lowered: Copy + Send + 'static {
    /// The view that a closure gets.
    type View<'k>;

    /// Whether a kernel with this argument waits for peers by itself.
    #[doc(hidden)]
    const WAITS: bool = false;

    /// Makes the view. `stream` is the stream that the kernel runs on.
    ///
    /// # Safety
    ///
    /// Only the stream's executor calls this, for a kernel that was enqueued with this argument. The view is dropped
    /// before the next work item. No other view of the same argument exists.
    unsafe fn view<'k>(self, stream: &'k dyn Issues) -> Self::View<'k>;

    /// The argument's relation to the slots of a window.
    #[doc(hidden)]
    fn of_slots(&self) -> OfSlots {
        OfSlots::Nothing
    }

    /// Appends the parameters that device code gets. A slice is two parameters of 8 bytes: an address, and a length in
    /// elements.
    fn push(self, parameters: &mut Parameters);
}

/// An argument with which a kernel waits for no peer: each but a half that is lent. A kernel of another library gets
/// such arguments only, since nobody makes sure that all of its blocks run at the same time. (See
/// [`foreign`](crate::kernel::foreign).)
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::DeviceError;
/// use tidegate::host::{Host, HostStream};
/// use tidegate::kernel::{Argument, Parameters, WaitsForNobody, foreign};
///
/// # tidegate::doc::stream(|world, s| {
/// /// Launches another library's kernel with any argument that such kernels take.
/// fn call<'s, A: Argument<'s, Host, Lowered: WaitsForNobody>>(s: &Stream<'s>, argument: A) -> Result<()> {
///     let enqueue = |_: &HostStream, _: &Parameters| Ok::<_, DeviceError>(()); // the library's call
///     // SAFETY: it enqueues nothing.
///     s.launch(unsafe { foreign(enqueue) }, (argument,))
/// }
/// # let x = Region::from_slice(world, &[1.0])?.on(s)?;
/// call(s, &x)
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "a kernel of another library cannot own a half of a window",
    note = "nobody makes sure that all of its blocks run at the same time"
)]
pub trait WaitsForNobody: Lowered {}

/// How an argument relates to the slots of a window. A window is named by the number of its declaration.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub enum OfSlots {
    Nothing,
    /// The argument is the table of a window's slots.
    Table(u64),
    /// The argument is a handle. It has the window and the number of a slot in that window's table.
    Handle(u64, u32),
    /// The argument has all outbound slots of a window, or those of a target.
    OutTable(u64),
    /// The argument is a handle of an outbound slot. It has the window and the number of the slot among those.
    OutHandle(u64, u32),
}

impl OfSlots {
    /// Of one kind of slots only: those that origins fill, or those of targets.
    fn of_kind(self, out: bool) -> Self {
        match self {
            OfSlots::OutTable(window) if out => OfSlots::Table(window),
            OfSlots::OutHandle(window, slot) if out => OfSlots::Handle(window, slot),
            OfSlots::Table(_) | OfSlots::Handle(..) if !out => self,
            _ => OfSlots::Nothing,
        }
    }
}

/// Checks that each handle belongs to the table before it among the arguments (or to the first one behind it if none is
/// before). Device code uses the handle's number as an index into that table.
pub(crate) fn check_handles(arguments: &[OfSlots]) -> Result<()> {
    check_kind(arguments, false)?;
    check_kind(arguments, true)
}

fn check_kind(arguments: &[OfSlots], out: bool) -> Result<()> {
    let arguments = || arguments.iter().map(|argument| argument.of_kind(out));
    let tables = |of: OfSlots| match of {
        OfSlots::Table(window) => Some(window),
        _ => None,
    };
    let mut table = arguments().find_map(tables);
    for argument in arguments() {
        match argument {
            OfSlots::Table(window) => table = Some(window),
            OfSlots::Handle(window, slot) if table.is_some_and(|table| table != window) => {
                return Err(KernelError::ForeignSlot { slot }.into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// A shared slice as it is enqueued.
pub struct LoweredShared<T> {
    ptr: Ptr,
    len: usize,
    marker: PhantomData<T>,
}

/// An exclusive slice as it is enqueued.
pub struct LoweredExclusive<T>(LoweredShared<T>);

impl<T> LoweredShared<T> {
    pub(crate) fn new(ptr: Ptr, len: usize) -> Self {
        LoweredShared {
            ptr,
            len,
            marker: PhantomData,
        }
    }
}

impl<T> LoweredExclusive<T> {
    pub(crate) fn new(ptr: Ptr, len: usize) -> Self {
        LoweredExclusive(LoweredShared::new(ptr, len))
    }
}

impl<T> Clone for LoweredShared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for LoweredShared<T> {}
impl<T> Clone for LoweredExclusive<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for LoweredExclusive<T> {}

fn whole<T: Element, D: Device>(region: &Region<T, On<'_, D>>) -> LoweredShared<T> {
    LoweredShared::new(region.body.ptr(), region.len())
}

// SAFETY: the region is at home on the stream, and a shared borrow gives a shared view.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for &Region<T, On<'s, D>> {
    type Lowered = LoweredShared<T>;
    #[inline]
    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredShared<T>> {
        self.body.settle(stream, Touch::Read, Location::caller())?;
        Ok(whole(self))
    }
}

// SAFETY: the region is at home on the stream, and the exclusive borrow gives the only view.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for &mut Region<T, On<'s, D>> {
    type Lowered = LoweredExclusive<T>;
    #[inline]
    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredExclusive<T>> {
        self.body.settle(stream, Touch::Write, Location::caller())?;
        Ok(LoweredExclusive(whole(self)))
    }
}

// SAFETY: see `view`.
unsafe impl<T: Element> Lowered for LoweredShared<T> {
    type View<'k> = &'k [T];

    unsafe fn view(self, _: &dyn Issues) -> &[T] {
        // SAFETY: `ptr` and `len` belong to a region on the stream: it lives until the stream has passed, is aligned,
        // and all bytes are valid. Only work of this stream writes it, in order. No exclusive view was borrowed for the
        // same kernel.
        unsafe { std::slice::from_raw_parts(self.ptr.0.cast::<T>(), self.len) }
    }

    fn push(self, parameters: &mut Parameters) {
        parameters.push(&self.ptr);
        parameters.push(&(self.len as u64));
    }
}

impl<T: Element> WaitsForNobody for LoweredShared<T> {}

// SAFETY: see `view`.
unsafe impl<T: Element> Lowered for LoweredExclusive<T> {
    type View<'k> = &'k mut [T];

    unsafe fn view(self, _: &dyn Issues) -> &mut [T] {
        // SAFETY: as for the shared view. This one was borrowed exclusively, so the kernel has no other.
        unsafe { std::slice::from_raw_parts_mut(self.0.ptr.0.cast::<T>(), self.0.len) }
    }

    fn push(self, parameters: &mut Parameters) {
        self.0.push(parameters);
    }
}

impl<T: Element> WaitsForNobody for LoweredExclusive<T> {}
