//! Kernels, and their arguments.
//!
//! # Model
//!
//! [`Stream::launch`] takes a kernel and its arguments. It borrows the arguments for the call only. When the kernel
//! runs later, it sees *views* of the same memory: `&[T]`, `&mut [T]`, or [`Slots`](crate::window::Slots). This is
//! sound because only work of its own stream can touch a region, and the stream executes its work in order. The borrow
//! checker makes sure that no kernel gets two exclusive views of one region.
//!
//! A kernel has up to 16 arguments. If it needs more, put several arrays into one region, and let the kernel find its
//! parts. A closure on the host can also capture an `Arc` of data that it only reads.

/// Calls a macro once for each number of arguments that a kernel may have, with that many pairs of names.
macro_rules! for_tuples {
    ($each:ident) => {
        for_tuples! {
            $each [] P0 A0, P1 A1, P2 A2, P3 A3, P4 A4, P5 A5, P6 A6, P7 A7,
            P8 A8, P9 A9, P10 A10, P11 A11, P12 A12, P13 A13, P14 A14, P15 A15,
        }
    };
    ($each:ident [$($before:tt)*]) => {};
    ($each:ident [$($before:tt)*] $parameter:ident $argument:ident, $($behind:tt)*) => {
        $each!($($before)* $parameter $argument);
        for_tuples!($each [$($before)* $parameter $argument,] $($behind)*);
    };
}

mod closure;
mod declare;
mod foreign;
mod function;
mod launch;

pub use crate::argument::{Argument, Lowered, LoweredExclusive, LoweredShared, WaitsForNobody};
pub use foreign::{Foreign, foreign};
pub use function::{Function, Launch, Module, Parameter, Plain, Signature};
pub use tidegate_hal::code::{Code, SourceText};
pub use tidegate_hal::device::{Grid, Issues, Parameters};

use std::sync::Arc;

use tidegate_hal::device::Device;

use crate::error::{Error, KernelError, Result};
use crate::stream::Stream;

/// A kernel that can be enqueued with arguments `A`.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::kernel::Kernel;
///
/// # tidegate::doc::stream(|world, s| {
/// /// Enqueues any kernel of one vector, twice.
/// fn twice<'s, K>(s: &Stream<'s>, kernel: K, x: &mut Region<f64, On<'s>>) -> Result<()>
/// where
///     K: for<'b> Kernel<'s, Host, &'b mut Region<f64, On<'s>>> + Copy,
/// {
///     s.launch(kernel, &mut *x)?;
///     s.launch(kernel, x)
/// }
/// # let mut x = Region::from_slice(world, &[1.0])?.on(s)?;
/// # twice(s, |x: &mut [f64]| x[0] += 1.0, &mut x)?;
/// # assert_eq!(x.into_host(s)?[0], 3.0);
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel for these arguments",
    note = "on the host a kernel is a `Fn` over the views: `&mut [T]` for `&mut Region<T, _>`, `&[T]` for `&Region<T, _>`, `Slots<'_, T>` for an inbox view",
    note = "its arguments are on the kernel's stream (`region.on(&stream)?`), and borrowed: `&mut region`, `&region`, `inbox.view()`, or a tuple of them and of numbers",
    note = "write the types of a closure's arguments, `move` what it captures, and let it capture only `Clone + Send + 'static` values",
    note = "a kernel has at most 16 arguments: put several arrays into one region, or capture data that the host only reads in an `Arc`",
    note = "a function of `kernel!` takes exactly the declared types, in that order: `&mut [T]` from `&mut region`, `&[T]` from `&region`, `Slots<T>` from `inbox.view()`, numbers of the same type",
    note = "a kernel of `foreign` cannot own a half of a window: lend `inbox.lend()` or `outbox.lend()` to a function of `kernel!`, or on the host to a closure"
)]
pub trait Kernel<'s, D: Device, A> {
    /// Enqueues the kernel.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::launch`].
    #[track_caller]
    fn enqueue(self, stream: &Stream<'s, D>, arguments: A) -> Result<()>;

    /// The name by which tools know it: that of its type, or of the function of device code.
    fn name(&self) -> Arc<str> {
        std::any::type_name::<Self>().into()
    }
}

/// The error for arguments that do not fit the parameters of a kernel.
#[cold]
fn too_many() -> Error {
    KernelError::TooManyArguments.into()
}
