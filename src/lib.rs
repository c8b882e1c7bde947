//! Safe, GPU-stream-aware, one-sided messaging: active-target RMA whose epochs are typed tokens.
//!
//! # Model
//!
//! The processes of a job are the *ranks* of a [`World`](host::World). A program enqueues kernels and epochs on
//! [`Stream`](host::Stream)s, and each stream executes them in order. A [`Region`](host::Region) is memory that is *at
//! home* on one stream or with the host. Only that one may touch it, and the type of the region names it. A [`Window`]
//! is memory that other ranks put into. All ranks open it together, and each rank gets two tokens:
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
//!     assert_eq!(inbox.read(&s)?.slot(from_peer), [peer as u64; 4]); // `read` waits for the stream
//!     Ok(())
//! }
//!
//! fn main() -> Result<()> {
//!     // Two ranks, as threads of this process. (`World::init` joins a job of processes.)
//!     World::local(2, swap).into_iter().collect()
//! }
//! ```
//!
//! The [tutorial](guide::tutorial) explains this step by step. [`guide`] has a page for each further topic.
//!
//! # Where to look
//!
//! | to | look at |
//! |---|---|
//! | join a job | [`World::init`](Init::init), [`World::local`](host::World::local) |
//! | say which rank may write which memory | [`window`]: by slot, by range, atomic |
//! | compute between epochs | [`Stream::launch`](generic::Stream::launch); on GPUs [`kernel!`], [`code!`], [`cuda`],
//! [`guide::gpus`] | | enqueue a whole epoch as one work item | [`exchange`]; on a rank that only receives,
//! [`Inbox::expose`](host::Inbox::expose) |
//! | record a step once, and replay it | [`capture`] |
//! | compute a sum over all ranks, gather, broadcast | [`collective`], [`guide::collectives`] |
//! | open windows and collectives of some of the ranks | [`Team`](host::Team), [`guide::groups`] |
//! | put elements that do not lie side by side, or let them land so | [`Layout`](host::Layout), [`RangeWindow`] |
//! | lend parts of one region to two streams | [`Region::partition`](generic::Region::partition), [`IndexSet`] |
//! | send messages whose length is only known at run time | [`guide::messages`] |
//! | wait in async code | [`guide::in_async_programs`] |
//! | write code for any device | [`generic`] |
//! | use streams and memory of another CUDA library | [`cuda::interop`], [`guide::from_cudarc`] |
//! | reach other nodes | [`World::init`](Init::init) does it; [`fabric`] has the options, [`guide::nodes`] the commands
//! |
//! | run inside an MPI job, or with MPI as the only transport | [`guide::from_mpi`] |
//! | correct an error about lifetimes | [`guide::when_the_compiler_says_no`] |
//! | start a job of processes | the package `tidegate-cli`: the program `tidegate`, and a library |
//! | support another device or NIC | [`hal`], with the feature `unstable-hal` |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `cuda` (default) | NVIDIA GPUs: [`cuda`] |
//! | `hip` | AMD GPUs: [`hip`]. No AMD GPU has run it yet |
//! | `fabric` (default) | ranks on several nodes, by libfabric: [`fabric`] |
//! | `half` | elements of the crate `half`: `f16`, `bf16` |
//! | `complex` | elements of the crate `num-complex` |
//! | `bytemuck` | elements of any type that is `bytemuck::Pod` |
//! | `profiler` | the calls of a program as ranges in profilers of the host (NVTX, roctx): [`observe::Profiler`] |
//! | `prometheus` | counters of each rank, in the text format of Prometheus: [`observe::Counters`] |
//! | `mpi` | worlds made of MPI communicators, and MPI's windows as a transport; to build it you need an MPI and
//! libclang |
//! | `unstable-hal` | [`hal`]: the contracts of devices, NICs and control planes, which may change with any version |
//!
//! A build needs neither CUDA nor ROCm nor libfabric: they are loaded at run time, if a program uses them. Without
//! default features, tidegate is for the host alone: streams are threads, and the ranks are on one node.
//!
//! # Failure
//!
//! Calls fail with an [`Error`], so `?` works with `anyhow`, `eyre` and `Box<dyn Error>`.
//!
//! - *A call that takes a token* loses it when it fails. It then revokes the window on all ranks, so that no peer waits
//!   for ever. Each such call has a twin: `try_post` is that of `post`. If the twin fails, it has no effect, and
//!   returns the token in a [`Rejected`]. Dropping a token in the middle of its epoch revokes the window, too.
//! - *A wait* ends when its event comes, when the limit of its window has passed, or when the rank that it waits for
//!   dies. The error names that rank.
//! - *A stream* that has failed skips all later work. Each later call that enqueues work on it, or waits for it,
//!   returns the error. Ranks that wait for a signal of that stream fail, too.
//! - *If a rank dies*, all that was opened with it is revoked ([`Error::Revoked`]), and nothing new can be opened with
//!   it ([`Error::Control`]). Only [teams](guide::groups) without it go on. Each rank can still save its own data: the
//!   host's regions, and the regions of streams on which no wait failed. The living ranks can make a new
//!   [team](guide::groups), unless rank 0 is lost.
//! - *If a rank leaves* (it drops its world, or its program ends), open windows still work for the other ranks. Only
//!   waits for that rank end with an error. No new window can be opened then, either.

// The tables above link to all features.
#![cfg_attr(
    not(all(
        feature = "cuda",
        feature = "hip",
        feature = "fabric",
        feature = "profiler",
        feature = "prometheus",
        feature = "unstable-hal"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "tidegate runs on Linux with 64-bit pointers only: it shares memory by memfd, and wakes ranks by futex"
);

mod devices;
#[doc(hidden)]
pub mod doc;

/// What a device, a NIC and a control plane are, for new ones. It may change with any version.
// (Not `pub use tidegate_hal as hal`: the compiler would write the paths of both in what it suggests.)
#[cfg(feature = "unstable-hal")]
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
    #[cfg(feature = "cuda")]
    pub mod cuda {
        #[doc(inline)]
        pub use tidegate_cuda::{CudaEvent, CudaFunction, CudaGraph, CudaModule, StreamState};
    }

    /// What HIP devices are made of, for code that names the types that belong to a device.
    #[cfg(feature = "hip")]
    pub mod hip {
        #[doc(inline)]
        pub use tidegate_hip::{HipEvent, HipFunction, HipGraph, HipModule, StreamState};
    }
}

pub mod generic;
pub mod guide;
mod start;

pub use start::Init;
pub use tidegate_core::{
    Arithmetic, Cartesian, Cells, CellsMut, Choice, Chunks, Element, Error, IndexSet, Members,
    Priority, Reducible, Rejected, Result, Route, StreamOptions, Throttle, WorldOptions, capture,
    code, collective, element, error, kernel, observe, stream, verify, window,
};
pub use tidegate_derive::Element;
#[cfg(feature = "fabric")]
#[doc(inline)]
pub use tidegate_fabric as fabric;
#[cfg(feature = "mpi")]
#[doc(inline)]
pub use tidegate_mpi as mpi;
pub use window::{
    AllRanges, AllSlots, Atomic, AtomicWindow, Buffers, ByRange, BySlot, Group, In, KernelAccess,
    KernelExposed, KernelInbox, KernelOutbox, LastRanges, LastSlots, Op, Out, OutRanges, OutSlots,
    RangeWindow, SlotWindow, Slots, Window, exchange, try_exchange,
};

#[doc(hidden)]
pub use tidegate_core::{__private, Carry, UnboundStream};

pub mod host;

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "hip")]
pub mod hip;

/// The program of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
