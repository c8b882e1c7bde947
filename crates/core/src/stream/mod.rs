//! Streams with a brand.
//!
//! # Model
//!
//! A [`Stream`] executes the work that is enqueued on it, in order, while the host goes on. Its lifetime parameter is a
//! *brand* that no other stream has. So a program that uses a region, a window half or an epoch of one stream on
//! another does not compile. [`stream!`](crate::stream!) makes a stream with a brand of its own.
//!
//! # How far the host may run ahead
//!
//! The queue of a host stream holds up to 2^20 items that are not done yet. Most calls enqueue one item. An all-reduce
//! enqueues a few, and so does a call that first has to wait for a NIC's reads. A replay is one item, however many
//! times it replays. An item takes 32 bytes, a kernel 112 more, and still more if its closure is large. If the queue is
//! full, a call returns [`DeviceError::QueueFull`](tidegate_hal::device::DeviceError::QueueFull);
//! [`Stream::synchronize`] makes room.
//!
//! The driver of a GPU takes about 1,024 launches a stream. The next call then blocks until the stream has done some of
//! its work. If it blocks for long, the report of long waits says so.
//!
//! # Failure
//!
//! A stream does no more work after one of its waits failed or one of its kernels panicked, because later work may
//! depend on what failed. Every later call that enqueues work, or waits for the stream, returns the error.
//! [`Region::on`](crate::Region::on) and [`Stream::hand_off`] do not; but the stream to which something is handed off
//! fails, too.

mod arm;
mod arming;
mod count;
mod make;
mod noted;
mod passed;
mod queue;
mod submit;
mod throttle;
mod tickets;

pub(crate) use arm::{Arm, RecordedArms};
pub(crate) use arming::armed;
pub(crate) use count::home_number;
pub use make::StreamOptions;
pub(crate) use noted::{Noted, NotedStep};
pub use queue::{Stream, UnboundStream};
pub(crate) use tickets::{prepare_wait, settle_all, wait_for};

/// Declares a stream with a brand of its own: `stream!(let s = world.stream()?);`. Without the
/// macro, `let s = world.stream()?` is an [`UnboundStream`], which no call takes.
///
/// `s` is then a [`Stream`]. Errors and reports call it `s`, if it has no other name. It lives until the end of the
/// block, and so does everything that is at home on it. So a function that makes a stream cannot return it, and cannot
/// return a struct that holds it ("cannot return value referencing local variable", E0515). Let the caller make the
/// stream and pass `&s`. (`tidegate::guide::when_the_compiler_says_no` has an example.)
///
/// The expression is evaluated in the function that contains the macro, so `?` and `.await` work in it.
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
/// let x = s.hand_off(x, &t)?; // before this, `t.launch(kernel, &x)?` does not compile
/// # drop(x);
/// # Ok(()) });
/// ```
#[macro_export]
macro_rules! stream {
    // `mut` is allowed, because `capture` takes `&mut s`. `s` is mutable anyway.
    (let mut $name:tt = $unbound:expr $(;)?) => {
        $crate::stream!(let $name = $unbound);
    };
    (let ($($pattern:tt)*) = $unbound:expr $(;)?) => {
        $crate::__private::compile_error!("`stream!` declares one stream: `stream!(let s = world.stream()?);`")
    };
    // This is a token tree and not an identifier, so that it keeps its place in the caller's program, and errors point
    // there.
    (let $name:tt = $unbound:expr $(;)?) => {
        // But it must be an identifier: a macro could expand to another name each time.
        $crate::stream!(@identifier $name);
        // (`unbound @ _` always declares a variable; plain `unbound` could be a constant of the program. The first
        // `$name` needs no `@ _`, because no constant has its type. And errors name a variable only if the whole
        // pattern is the program's.)
        #[allow(clippy::redundant_pattern)]
        let unbound @ _ = $unbound;
        // SAFETY: it is a variable that nothing can move once it is borrowed below. That borrow lasts until the end of
        // the block, where the value that `brand` returns is dropped before it. The `return` below is a path to that
        // end.
        let $name = unsafe { $crate::__private::Id::new() };
        #[allow(clippy::redundant_pattern)]
        let id @ _ = &$name;
        // SAFETY: it is the only guard of this `Id`, which nothing else can name.
        #[allow(clippy::redundant_pattern)]
        let guard @ _ = unsafe { $crate::__private::Guard::of(id) };
        $crate::__private::named!(
            mut $name =
                $crate::UnboundStream::bind(unbound, guard, $crate::__private::stringify!($name))
        );
        // This is dropped before the stream, so the stream may be borrowed for as long as its brand lasts. It has the
        // stream's name, which the caller's program cannot see. So an error about two streams that are mixed up names
        // both.
        $crate::__private::named!($name = $crate::__private::brand(id));
        // However the block goes on, this is a path to its end, so that the compiler checks the drop there.
        #[allow(clippy::redundant_pattern)]
        if let $crate::__private::Some(x @ _) = $crate::__private::None {
            return x;
        }
    };
    (@identifier $name:ident) => {};
}
