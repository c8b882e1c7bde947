//! Safe, GPU-stream-aware, one-sided messaging: active-target RMA whose epochs are typed tokens.
//!
//! # Model
//!
//! The processes of a job are the *ranks* of a [`World`](host::World). A program enqueues kernels and epochs on
//! [`Stream`](host::Stream)s, and each stream executes them in order. A [`Region`](host::Region) is memory that is *at home* on
//! one stream or with the host: only that one may touch it, and the region's type says which it is. All ranks open a
//! [`Window`] together, and each rank gets two tokens:
//!
//! ```text
//! Inbox  --post-->  Exposed  --wait-->      Inbox       in between, others put into it
//! Outbox --start->  Access   --complete-->  Outbox      in between, this rank puts into others' inboxes
//! ```
//!
//! Each call takes the token and returns the next one. A token has only the methods that are allowed in its state. The
//! source of a put stays borrowed until its epoch is complete. `post`, `complete` and `wait` are *enqueued*: the stream
//! opens and closes the epochs by itself, and the host waits once, when it needs a result.
//!
//! ```
//! use tidegate::host::prelude::*;
//!
//! fn swap(world: World) -> Result<()> {
//!     let peer = 1 - world.rank();
//!     stream!(let s = world.stream()?);
//!     let mut window = SlotWindow::<u64>::new("swap");
//!     let from_peer = window.slot_from(peer, 0, 4); // a handle: kernels and the host find the slot by it
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
//! // Two ranks, as threads of this process. (`World::init` joins a job of processes.)
//! for outcome in World::local(2, swap) {
//!     outcome.expect("both ranks are there");
//! }
//! ```
//!
//! # Where to look
//!
//! | to | look at |
//! |---|---|
//! | join a job | [`World::init`](Init::init), [`World::local`](host::World::local), [`launch`] |
//! | say who may write what | [`window`]: by slot, by range, atomic |
//! | compute between epochs | [`Stream::launch`](generic::Stream::launch), on GPUs [`kernel!`] and [`cuda`] |
//! | enqueue a whole epoch as one work item | [`exchange`]; on a rank that only receives, [`Inbox::expose`](host::Inbox::expose) |
//! | record a step once, and replay it | [`capture`] |
//! | lend parts of one region to two streams | [`Region::partition`](generic::Region::partition), [`Part`](generic::Part), [`IndexSet`] |
//! | put elements that do not lie side by side | [`Layout`](host::Layout) |
//! | let a face land in the neighbour's array, without a kernel that unpacks it | [`RangeWindow`], and its `layout_to` |
//! | put complex or half-precision numbers, structs, types of other crates | [`Element`], and the features `half`, `complex`, `bytemuck` |
//! | send messages whose length is only known at run time | [`guide::messages`] |
//! | wait in async code | [`Stream::synchronized`](generic::Stream::synchronized), [`Region::into_host_async`](generic::Region::into_host_async) |
//! | use streams and memory of another CUDA library | [`cuda::interop`] |
//! | reach other nodes | [`World::init`](Init::init) does it; [`fabric`] has the options |
//! | run inside an MPI job, or with MPI as the only transport | the feature `mpi`: `tidegate::mpi`, and [`guide::from_mpi`] |
//! | support another device or NIC | [`hal`] |
//!
//! # Lifetimes, and solvers that are objects
//!
//! A stream's lifetime parameter is its *brand*. Everything that is at home on the stream has the same brand. A function
//! takes `s: &Stream<'s>`, which borrows the stream for the call. Never write `&'s Stream<'s>`, though the compiler may
//! suggest it: it borrows the stream for as long as the stream lives, and then you can no longer capture (E0502).
//! [`guide::when_the_compiler_says_no`] explains the other errors about lifetimes.
//!
//! A struct that holds regions and window halves does not hold their stream, since the brand cannot leave the block that
//! made the stream. The caller makes the stream, and passes it to each call.
//!
//! ```
//! use tidegate::host::prelude::*;
//!
//! struct Solver<'s> {
//!     x: Region<f64, On<'s>>,
//!     from_left: In<f64>,
//!     to_right: Out<f64>,
//!     halves: Option<(Inbox<'s, f64>, Outbox<'s, f64>)>, // `None` only while a step runs, and after one failed
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
//! (A step that is to be recorded takes the struct by value and returns it, as in the README. Then the halves need no
//! `Option`, and the struct has `#[derive(Carry)]`.)
//!
//! # Async
//!
//! A solver can be a tokio task: see [`guide::in_async_programs`].
//!
//! # Failure
//!
//! A wait ends when its event comes, when the limit of its window has passed, or when the rank that it waits for dies.
//! tidegate notices the death, and the error names the rank.
//!
//! Calls fail with an [`Error`], so `?` works with `anyhow`, `eyre` and `Box<dyn Error>`. A call that takes a token loses it
//! when it fails; it then revokes the window on all ranks, so that no peer waits for ever. Each such call has a twin that has no
//! effect if it fails, and returns the token in a [`Rejected`]. Use `inbox.try_post(&s)`, say, if a queue may be full and the
//! program can wait until it has room. A token that is dropped in the middle of its epoch revokes the window on all ranks,
//! too.
//!
//! A stream that has failed skips all later work. It poisons the signals that it would have sent, so the ranks that wait
//! for them fail, too. A call that synchronises with the stream returns the error.
//!
//! After a rank is lost, all windows and barriers of the job are revoked ([`Error::Revoked`], with the lost rank as its
//! cause), also those between other ranks, and no new ones can be opened ([`Error::Control`]). A job cannot shrink: end it, and
//! start a new one. Each rank can still save its own data: the host's regions, and the regions of streams on which no wait
//! failed. When a rank *leaves* the job, open windows still work for the other ranks; only waits for that rank end with an
//! error. No new window can be opened then, either.

mod devices;
#[doc(hidden)]
pub mod doc;

/// What a device is: for code that works with any device, and for new devices.
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

pub mod generic;
pub mod guide;
mod start;

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
