//! libfabric, from `libfabric.so.1`: NICs, and providers without hardware.
//!
//! # Model
//!
//! [`Library::load`] opens the installed library; no headers are needed, neither to build nor to run. It looks up a
//! handful of functions under the *versions* that they had in 1.17. Newer libraries keep those versions, and the
//! layouts that belong to them. All other operations are function pointers, in tables that the library's objects point
//! to ([`sys`] has the layouts). So one build works with 1.17 and with 2.x.
//!
//! [`Library::query`] takes [`Hints`], and returns descriptions ([`Info`]) of what there is. From a description, in
//! this order, come a [`Fabric`] (network), a [`Domain`] (interface), and in the domain an [`AddressVector`] (peers),
//! [`CompletionQueue`]s, [`Counter`]s, an [`Endpoint`] that is bound to these, and [`MemoryRegion`]s that peers can
//! reach.
//!
//! Each is an owned value. When it is dropped, it closes its object. It keeps alive what the object needs: an endpoint
//! keeps its queues, memory keeps its endpoint. If the library refuses to close an object, the object leaks, with all
//! that it needs, and is [counted](leaked_objects).
//!
//! *Threads.* Domains are opened as `FI_THREAD_SAFE`, and everything can be shared: see [`Domain`].
//!
//! *What is unsafe.* Registering memory, and operations on memory of this end that is named by its address. An
//! operation that copies its data before it returns ([`Endpoint::inject_write_data`]) is safe: the other end agreed to
//! the write when it registered its memory. Contexts are plain numbers, as long as nobody asks for [`Mode::CONTEXT`].
//!
//! *Progress* is made by the provider, or by the thread that reads queues and counters ([`Progress`]). In the second
//! case, an end that reads nothing stops its peers.
//!
//! *Deferred works* ([`WorkQueue`]) are operations that begin when a counter has come far enough. Only a trial tells
//! whether a provider has them ([`Domain::probe_deferred`]). Of the providers without hardware, sockets has them. With
//! a [`CxiCounter`] they become useful to a GPU: a store adds to such a counter.
//!
//! # Failure
//!
//! - [`LoadError`]: no library, one that is too old, or one that is something else.
//! - [`FabricError`]: the call, the code as a number, its name, and the library's words. An operation that a provider's
//!   table does not have, or that lies beyond the table's end, is never called: [`FabricError::is_missing`].
//! - "Not now" is not an error: posting answers [`Post::Again`], and reading returns nothing.
//! - An operation that fails after it was accepted comes out of its queue as [`CqError::Completion`], with the
//!   provider's own code and words.
//! - [`InsertError`] and [`QueueError`] say which parts failed, and which did not.
//!
//! # What providers do (1.17 and 2.6)
//!
//! This is the result of trials. The tests check it, except for what needs hardware.
//!
//! - *sockets* has everything: remote counters, atomics that come after writes, deferred works. It is slow. It makes
//!   progress with threads of its own, which lose the processor to a user that spins. It reports a time-out with a
//!   positive number, and in 1.17 at once. If a deferred put fails, its completion counter counts nothing, so its
//!   signal does not fire; the endpoint's counter and queue report the failure. It has neither cancel nor flush.
//! - *`tcp;ofi_rxm`* has no remote counters and no deferred works. Atomics exclude [`Order::WAW`] (ask for
//!   [`Order::RMA_WAW`]), so a signal that is an atomic is not ordered after its data. It promises [`Order::RMA_WAW`]
//!   for 0 bytes only ([`Info::max_order_waw_size`]), although its one connection for each peer keeps that order. A
//!   write that fails at the target is *complete* all the same, unless it was to be delivered
//!   ([`OpFlags::DELIVERY_COMPLETE`]). The error ends the connection, appears in the queue, and is not counted. The
//!   next operation connects again. Hints with the domain's name can find nothing. *It crashes* if a connection ends in
//!   the middle of an incoming write with [`OpFlags::REMOTE_CQ_DATA`]: when this end closes its endpoint, and from 1.18
//!   on also when the peer dies. (`tcp` reports the write as failed, without a context, and `ofi_rxm` reads behind
//!   the context.) It bears the same for a write without such data, and a write of 0 bytes has no middle.
//! - *`tcp`* alone has endpoints of this kind from 1.18 on (tested with 2.5), without the layer `ofi_rxm`. It behaves
//!   the same, and is faster.
//! - *shm* is the fastest. If several threads of one process open endpoints, two can get the same name, and then one is
//!   busy. In 2.6, two endpoints of one process that wrote to each other, each used by a thread of its own, crashed.
//! - The completion of an own write can carry the flag of remote data. [`Completion::remote_data`] looks at which end
//!   wrote.

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
