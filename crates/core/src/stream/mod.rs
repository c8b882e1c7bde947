//! Streams with a brand.
//!
//! # Model
//!
//! A [`Stream`] executes what is enqueued on it, in order, while the host goes on. Its lifetime parameter is a
//! *brand*: it belongs to this stream alone, so that a region, a window half or an epoch of one stream cannot be used
//! on another by mistake: that does not compile. [`stream!`](crate::stream!) makes a stream with a brand of its own.
//!
//! # How far the host may run ahead
//!
//! The queue of a host stream holds up to 2^20 items that have not been done. Most calls that enqueue take one item; an
//! all-reduce, and a call that waits for what a NIC still reads, take a few. A replay takes one, however many times it
//! replays. An item takes 112 bytes, beside what a large closure needs. A call beyond the limit returns [`DeviceError::QueueFull`](tidegate_hal::device::DeviceError::QueueFull);
//! [`Stream::synchronize`] makes room.
//!
//! The driver of a GPU takes about 1,024 launches a stream. The call after that blocks until the stream has gone on. If
//! it blocks for long, the report of long waits says so.
//!
//! # Failure
//!
//! A stream whose wait failed, or whose kernel panicked, does no more work: everything behind the failure depends on it
//! by order. Every later call reports what happened.

mod arm;
mod arming;
mod count;
mod make;
mod noted;
mod passed;
mod queue;
mod throttle;
mod tickets;

pub(crate) use arm::{Arm, RecordedArms};
pub(crate) use arming::armed;
pub(crate) use count::home_number;
pub use make::StreamOptions;
pub(crate) use noted::Noted;
pub use queue::{Stream, UnboundStream};
pub(crate) use tickets::{prepare_wait, settle_all, wait_for};

/// Declares a stream with a brand of its own: `stream!(let s = world.stream()?);`. Without the
/// macro (`let s = world.stream()?`) it is an [`UnboundStream`], which no call takes.
///
/// `s` is then a [`Stream`], alive until the end of the block, and so is all that is at home on it: a function that makes
/// a stream cannot return it, nor a struct that holds it ("cannot return value referencing local variable", E0515). Whoever
/// calls makes the stream, and hands in `&s`. (`tidegate::guide::when_the_compiler_says_no` has an example.)
///
/// The expression is evaluated where the macro stands, so `?` and `.await` work in it.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(1, |world| {
/// stream!(let s = world.stream()?);
/// stream!(let t = world.named_stream("interior")?);
/// let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
/// let x = s.hand_off(x, &t)?; // `t.launch(kernel, &x)?` does not compile before
/// # drop(x);
/// # Ok(()) });
/// ```
#[macro_export]
macro_rules! stream {
    // Whoever sees that `capture` takes `&mut s` may write `mut`; `s` is, anyway.
    (let mut $name:tt = $unbound:expr $(;)?) => {
        $crate::stream!(let $name = $unbound);
    };
    (let ($($pattern:tt)*) = $unbound:expr $(;)?) => {
        $crate::__private::compile_error!("`stream!` declares one stream: `stream!(let s = world.stream()?);`")
    };
    // A token tree, not an identifier: it keeps its place in the caller's program, and errors point there.
    (let $name:tt = $unbound:expr $(;)?) => {
        // But it is one: a macro could make another name of it each time.
        $crate::stream!(@identifier $name);
        // (`@ _` makes a name in any case: without, it could be a constant of the program's. Of the type of the first
        // `$name` there are no constants; and an error names a variable only if all of its pattern is the program's.)
        #[allow(clippy::redundant_pattern)]
        let unbound @ _ = $unbound;
        // SAFETY: it is a variable, which nothing can move once it is borrowed below, and that borrow lasts until the end
        // of the block: there what `brand` returns is dropped before it. The `return` below is a way to that end.
        let $name = unsafe { $crate::__private::Id::new() };
        #[allow(clippy::redundant_pattern)]
        let id @ _ = &$name;
        // SAFETY: it is the only guard of this `Id`, which nobody else can name.
        #[allow(clippy::redundant_pattern)]
        let guard @ _ = unsafe { $crate::__private::Guard::of(id) };
        $crate::__private::named!(mut $name = $crate::UnboundStream::bind(unbound, guard));
        // Dropped before the stream: so the stream may be borrowed for as long as its brand lasts. It has the stream's
        // name, which the caller's program does not see, for the sake of errors: one about two streams that are mixed up
        // names both.
        $crate::__private::named!($name = $crate::__private::brand(id));
        // However the block goes on, there is a way to its end, so that the compiler looks at the drop there.
        #[allow(clippy::redundant_pattern)]
        if let $crate::__private::Some(x @ _) = $crate::__private::None {
            return x;
        }
    };
    (@identifier $name:ident) => {};
}
