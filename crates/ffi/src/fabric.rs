//! libfabric, from `libfabric.so.1`: NICs, and the providers that do without.
//!
//! # Model
//!
//! [`Library::load`] opens what is installed (no headers are needed, neither to build nor to run) and takes a handful
//! of functions under the *versions* that they had in 1.17: newer libraries keep those, and the layouts that go with
//! them. All else are operations of objects: function pointers in tables that the objects point to ([`sys`] has the
//! layouts). So one build works with 1.17 and with 2.x.
//!
//! [`Library::query`] asks with [`Hints`] for descriptions ([`Info`]) of what there is. From one, in this order: a
//! [`Fabric`] (network), a [`Domain`] (interface), and in it an [`AddressVector`] (peers), [`CompletionQueue`]s,
//! [`Counter`]s, an [`Endpoint`] that is bound to these, and [`MemoryRegion`]s that peers can reach.
//!
//! Each is an owned value, which closes its object when it is dropped and keeps alive what that needs: an endpoint its
//! queues, memory its endpoint. What the library refuses to close is leaked, with all of that, and
//! [counted](leaked_objects).
//!
//! *Threads.* Domains are opened as `FI_THREAD_SAFE`, and everything can be shared: see [`Domain`].
//!
//! *What is unsafe.* Operations on memory of this end that is named by its address, and registering memory. What copies
//! before it returns ([`Endpoint::inject_write_data`]) is safe: what it does at the other end, that end agreed to when it
//! registered its memory. Contexts are numbers, as long as nobody asks for [`Mode::CONTEXT`].
//!
//! *Progress* is the provider's affair, or that of whoever reads queues and counters ([`Progress`]): then an end that
//! looks at nothing stops its peers.
//!
//! *Deferred works* ([`WorkQueue`]) are operations that begin when a counter comes far enough. Only trying tells
//! whether a provider has them ([`Domain::probe_deferred`]): of those that need no hardware, sockets has.
//! [`CxiCounter`] is what makes them useful to a GPU: a counter that a store adds to.
//!
//! # Failure
//!
//! - [`LoadError`]: no library, one that is too old, one that is something else.
//! - [`FabricError`]: the call, the code as a number, its name and the library's words. An operation that a provider's
//!   table does not have, or is too short for, is never called: [`FabricError::is_missing`].
//! - "Not now" is an answer: posting says [`Post::Again`], reading gives nothing.
//! - An operation that fails after it was taken comes out of its queue, as [`CqError::Completion`], with the provider's
//!   own code and words.
//! - [`InsertError`], [`QueueError`]: what of it failed, and what did not.
//!
//! # What providers do (1.17 and 2.6)
//!
//! Learnt by trying, and seen to by the tests, except for what needs hardware.
//!
//! - *sockets* has all: remote counters, atomics after writes in order, deferred works. It is slow; it makes its
//!   progress with threads of its own, from which a spinning user takes the processor. It says a time-out with a
//!   positive number, and in 1.17 at once. A deferred put that fails is not counted by its completion counter at all
//!   (its signal does not fire), but by the endpoint's counter and queue. It has neither cancel nor flush.
//! - *`tcp;ofi_rxm`* has no remote counters and no deferred works. Atomics exclude [`Order::WAW`] (ask for
//!   [`Order::RMA_WAW`]): a signal that is an atomic is not ordered after its data. It promises [`Order::RMA_WAW`] for
//!   0 bytes only ([`Info::max_order_waw_size`]), though its one connection a peer keeps it. A write that fails at the
//!   target is *complete* nevertheless, unless it was to be delivered ([`OpFlags::DELIVERY_COMPLETE`]); the error takes
//!   the connection down, is in the queue and not counted, and the next operation connects again. Hints with the
//!   domain's name can find nothing.
//! - *`tcp`* alone has endpoints of this kind from 1.18 on (tested with 2.5), without the layer `ofi_rxm`: the same, and
//!   faster.
//! - *shm* is the fastest; endpoints that several threads of one process open can get one name, and then one is busy. In 2.6
//!   two endpoints of one process that wrote to each other, each used by a thread of its own, crashed.
//! - A completion of the own write can carry the flag of remote data: [`Completion::remote_data`] looks at who wrote.

mod av;
mod block;
mod counter;
mod cq;
mod cxi;
mod domain;
mod endpoint;
mod env;
mod error;
mod flags;
mod hints;
mod info;
mod load;
mod memory;
mod object;
mod probe;
mod rma;
pub mod sys;
mod work;

pub use av::{AddressVector, BadAddress, InsertError, Peer};
pub use counter::{Counter, WaitObject};
pub use cq::{Completion, CompletionError, CompletionQueue, CqError};
pub use cxi::{CxiCounter, Mmio, WriteBack};
pub use domain::{Domain, Fabric};
pub use endpoint::{Desc, Endpoint, EndpointBuilder, Local, Post, Remote};
pub use env::ENVIRONMENT;
pub use error::{FabricError, Result, errno_name};
pub use flags::{Access, Caps, Counted, Mode, MrMode, OpFlags, Order, Reported};
pub use hints::{Hints, Location};
pub use info::{AddressFormat, Info, Progress};
pub use load::{
    API_VERSION, DupInfo, FreeInfo, Functions, GetInfo, LIBRARIES, LIBRARY_VARIABLE, Library,
    LoadError, OpenFabric, StrError, Version,
};
pub use memory::{MemoryRegion, RegionKey, RegisterOptions, RemoteRegion};
pub use object::{Keep, leaked_objects};
pub use probe::Deferred;
pub use rma::{MAX_PIECES, Message, RemotePiece};
pub use work::{QueueError, Work, WorkId, WorkQueue};
