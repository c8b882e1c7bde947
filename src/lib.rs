//! Safe, GPU-stream-aware, one-sided messaging: active-target RMA whose epochs are typed tokens.
//!
//! # Model
//!
//! The processes of a job are the *ranks* of a [`World`](host::World). Work is enqueued on [`Stream`](host::Stream)s, which do it in order: kernels,
//! and epochs. A [`Region`](host::Region) is memory that is at home on one stream (or on the host), and its type says which. All
//! ranks together create a [`Window`], and each gets two tokens:
//!
//! ```text
//! Inbox  --post-->  Exposed  --wait-->      Inbox       others put into it between the two
//! Outbox --start->  Access   --complete-->  Outbox      this rank puts into others' between the two
//! ```
//!
//! Every arrow takes the token and gives the next one, so that what is not allowed in a state does not exist in it; and
//! what is put is borrowed until its epoch is complete. `post`, `complete` and `wait` are *enqueued*: the stream opens and
//! closes the epochs by itself, and the host waits once, when it wants to see a result.
//!
//! ```
//! use tidegate::host::prelude::*;
//!
//! fn swap(world: World) -> Result<()> {
//!     let peer = 1 - world.rank();
//!     stream!(let s = world.stream()?);
//!     let mut window = SlotWindow::<u64>::new("swap");
//!     let from_peer = window.slot_from(peer, 0, 4); // handles: kernels and epochs speak of slots by them
//!     let to_peer = window.slot_to(peer, 0);
//!     let (inbox, outbox) = window.open(&s)?;
//!     let src = Region::from_slice(&world, &[world.rank() as u64; 4])?.on(&s)?;
//!
//!     let exposed = inbox.post(&s)?;
//!     let mut epoch = outbox.start();
//!     epoch.put(&src, to_peer)?;
//!     let _outbox = epoch.complete(&s)?;
//!     let mut inbox = exposed.wait(&s)?;
//!
//!     assert_eq!(inbox.read(&s)?.slot(from_peer), [peer as u64; 4]);
//!     Ok(())
//! }
//!
//! // Two ranks, as threads of this process; `World::init` joins a job of processes.
//! for outcome in World::local(2, swap) {
//!     outcome.expect("both ranks are there");
//! }
//! ```
//!
//! # Where to look
//!
//! | to | look at |
//! |---|---|
//! | start, and find the others | [`World::init`](Init::init), [`World::local`](host::World::local), [`launch`] |
//! | say who may write what | [`window`]: by slot, by range, atomic |
//! | compute between epochs | [`Stream::launch`](generic::Stream::launch), on GPUs [`kernel!`] and [`cuda`] |
//! | do all of an epoch as one work item | [`exchange`]; who only receives [`Inbox::expose`](host::Inbox::expose) |
//! | record a step once, and replay it | [`capture`] |
//! | lend parts of one region to two streams | [`Region::partition`](generic::Region::partition), [`Part`](generic::Part), [`IndexSet`] |
//! | put what does not lie side by side | [`Layout`](host::Layout) |
//! | put complex or half numbers, structs, types of other crates | [`Element`], and the features `half`, `complex`, `bytemuck` |
//! | send messages whose length is known at run time only | [`varying_messages`] |
//! | wait in async code | [`Stream::synchronized`](generic::Stream::synchronized), [`Region::into_host_async`](generic::Region::into_host_async) |
//! | use streams and memory of another CUDA library | [`cuda::interop`] |
//! | reach other nodes | [`World::init`](Init::init) does; [`fabric`] has the options |
//! | run inside an MPI job, or over nothing but an MPI | the feature `mpi`: `tidegate::mpi`, and [`coming_from_mpi`] |
//! | write a device or a NIC of one's own | [`hal`] |
//!
//! # Lifetimes, and solvers that are objects
//!
//! A stream's lifetime parameter is its *brand*: what is at home on it has the same. A function takes
//! `s: &Stream<'s>`, borrowed for the call, and never `&'s Stream<'s>`: the compiler may suggest that, and it borrows the
//! stream for as long as it lives, so that it can be captured no more (E0502). What other errors about lifetimes mean:
//! [`guide::when_the_compiler_says_no`].
//!
//! For the same reason a struct that has regions and window halves has no stream: whoever makes the solver makes the
//! stream, and hands it to each call.
//!
//! ```
//! use tidegate::host::prelude::*;
//!
//! struct Solver<'s> {
//!     x: Region<f64, On<'s>>,
//!     from_left: In<f64>,
//!     to_right: Out<f64>,
//!     halves: Option<(Inbox<'s, f64>, Outbox<'s, f64>)>, // of which a call takes both, and gives both back
//! }
//!
//! impl<'s> Solver<'s> {
//!     fn new(world: &World, s: &Stream<'s>) -> Result<Self> {
//!         let (left, right) = world.ring();
//!         let mut window = SlotWindow::new("solver");
//!         let (from_left, to_right) = (window.slot_from(left, 0, 8), window.slot_to(right, 0));
//!         let halves = Some(window.open(s)?);
//!         let x = Region::from_slice(world, &[world.rank() as f64; 8])?.on(s)?;
//!         Ok(Solver { x, from_left, to_right, halves })
//!     }
//!
//!     fn step(&mut self, s: &Stream<'s>) -> Result<()> {
//!         let (inbox, outbox) = self.halves.take().expect("no step has failed");
//!         let mut epoch = outbox.start();
//!         epoch.put(&self.x, self.to_right)?;
//!         let (inbox, outbox) = exchange(s, inbox, epoch)?;
//!         let from_left = self.from_left;
//!         let take = move |came: Slots<'_, f64>, x: &mut [f64]| x.copy_from_slice(came.slot(from_left));
//!         s.launch(take, (inbox.view(), &mut self.x))?;
//!         self.halves = Some((inbox, outbox));
//!         Ok(())
//!     }
//! }
//!
//! # fn run(world: World) -> Result<()> {
//! stream!(let s = world.stream()?);
//! let mut solver = Solver::new(&world, &s)?;
//! for _ in 0..world.size() {
//!     solver.step(&s)?;
//! }
//! assert_eq!(solver.x.into_host(&s)?[0], world.rank() as f64); // once round
//! # Ok(())
//! # }
//! # World::local(3, run).into_iter().for_each(|outcome| outcome.unwrap());
//! ```
//!
//! (A step that is to be recorded takes the struct by value and gives it back, as in the README: then the halves need
//! no `Option`, and the struct is `#[derive(Carry)]`.)
//!
//! # Async
//!
//! A solver can be a task of tokio: see [`guide::asynchronous`].
//!
//! # Failure
//!
//! Every wait can end: by its event, by the limit of its window, or by the death of whom it waits for, which is noticed and
//! named. Calls fail with an [`Error`], so `?` works with `anyhow`, `eyre` and `Box<dyn Error>`. A call that takes a token and
//! fails has lost the token, and revokes its window for all ranks: so no peer waits in vain. Each such call has a twin
//! that has no effect if it fails, and gives the token back in a [`Rejected`]: `inbox.try_post(&s)`, say, where a queue may be full
//! and the program can wait until it is not. A stream that fails passes over
//! what stands behind; what it would have signalled is poisoned, so that ranks that wait for it fail too, and whoever
//! synchronises with it gets the error. A token that is dropped half-way through its epoch revokes the window, for
//! everybody, with that as the cause.
//!
//! After a loss all windows and barriers of the job are revoked ([`Error::Revoked`] with the lost rank as its cause),
//! those between other ranks, too, and none can be opened ([`Error::Control`]). There is no shrink: end, and start anew.
//! What survives is a rank's own: regions of the host, and those of streams that have waited for nothing in vain, so
//! that it can save what it has. When a rank *leaves*, open windows serve on, but for waits for that rank; none can be
//! opened any more then, either.

mod devices;
#[doc(hidden)]
pub mod doc;

/// What a device is: for code that serves any, and for new ones.
// (Not `pub use tidegate_hal as hal`: the compiler would write the paths of both in what it suggests.)
pub mod hal {
    #[doc(inline)]
    pub use tidegate_hal::*;

    /// What the host device is made of, for devices and NICs that build on it.
    pub mod host {
        #[doc(inline)]
        pub use tidegate_host::{
            HostBlock, HostEvent, HostGraph, HostMover, StreamState, copy_row, for_each_run,
        };
    }

    /// What CUDA devices are made of, for code that names the types that belong to a device.
    pub mod cuda {
        #[doc(inline)]
        pub use tidegate_cuda::{CudaEvent, CudaFunction, CudaGraph, CudaModule, Shared};
    }
}

pub mod coming_from_mpi;
pub mod generic;
pub mod guide;
mod start;
pub mod varying_messages;

pub use start::Init;
pub use tidegate_boot::launch;
pub use tidegate_core::{
    Arithmetic, Cartesian, Cells, CellsMut, Chunks, Element, Error, IndexSet, Priority, Rejected,
    Result, Route, StreamOptions, Throttle, WorldOptions, capture, element, error, kernel, stream,
    window,
};
pub use tidegate_derive::Element;
#[doc(inline)]
pub use tidegate_fabric as fabric;
#[cfg(feature = "mpi")]
#[doc(inline)]
pub use tidegate_mpi as mpi;
pub use window::{
    Atomic, AtomicWindow, Buffers, ByRange, BySlot, Group, In, Op, Out, RangeWindow, SlotWindow,
    Slots, Window, exchange, try_exchange,
};

#[doc(hidden)]
pub use tidegate_core::{__private, Carry, UnboundStream};

pub mod host;

pub mod cuda;

/// The README's programs, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
