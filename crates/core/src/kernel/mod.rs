//! Kernels, and what they are called with.
//!
//! # Model
//!
//! [`Stream::launch`] takes a kernel and its arguments. Arguments are borrowed for the call only: what the kernel sees
//! later are *views* of the same memory (`&[T]`, `&mut [T]`, [`Slots`](crate::window::Slots)), for as long as it runs.
//! That is sound because a region on a stream can be touched by work of that stream alone, which is executed in order;
//! the borrow checker sees to it that one kernel does not get two exclusive views of one region.

mod closure;
mod foreign;
mod function;
mod launch;

pub use crate::argument::{Argument, Exclusive, Lowered, Shared};
pub use foreign::{Foreign, foreign};
pub use function::{Function, Launch, Module, Parameter, Plain, Signature};

use tidegate_hal::device::{Device, Parameters};

use crate::error::{Error, Result};
use crate::stream::Stream;

/// A kernel that can be enqueued with arguments `A`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel for these arguments",
    note = "on the host a kernel is a `Fn` over the views: `&mut [T]` for `&mut Region<T, _>`, `&[T]` for `&Region<T, _>`, `Slots<'_, T>` for an inbox view",
    note = "what it is called with is on the kernel's stream (`region.on(&stream)?`) and borrowed: `&mut region`, `&region`, `inbox.view()`, or a tuple of them and of numbers",
    note = "write the types of a closure's arguments, `move` what it captures, and let it capture only `Clone + Send + 'static` values",
    note = "a closure of two or more arguments that a function has returned as `impl Fn` goes inside another: `let k = make(); s.launch(move |x: &[f64], y: &mut [f64]| k(x, y), (&x, &mut y))`",
    note = "a function of `kernel!` takes exactly the declared types, in that order: `&mut [T]` from `&mut region`, `&[T]` from `&region`, `Slots<T>` from `inbox.view()`, numbers of the same type"
)]
pub trait Kernel<'s, D: Device, A> {
    /// Enqueues it.
    ///
    /// # Errors
    ///
    /// If the device refuses.
    fn enqueue(self, stream: &Stream<'s, D>, arguments: A) -> Result<()>;
}

/// What has no room among the parameters of a kernel is not launched.
#[cold]
fn too_many() -> Error {
    Error::Invalid(format!(
        "the arguments are too much for a kernel: there is room for {} parameters (a slice is two) of {} bytes in all",
        Parameters::MAX,
        Parameters::MAX_BYTES
    ))
}
