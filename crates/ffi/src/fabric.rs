//! libfabric.
mod atomic;
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

pub use atomic::{AtomicOp, Element, Elements};
pub use av::{AddressVector, BadAddress, InsertError, Peer};
pub use counter::{Counter, WaitObject};
pub use cq::{Completion, CompletionError, CompletionQueue, CqError};
pub use cxi::{CxiCounter, Mmio, WriteBack};
pub use domain::{Domain, Fabric};
pub use endpoint::{Desc, Endpoint, EndpointBuilder, Local, Post, Remote};
pub use env::{ENVIRONMENT, set_environment};
pub use error::{FabricError, Result, errno_name};
pub use flags::{Access, Caps, Counted, Mode, MrMode, OpFlags, Order, Reported};
pub use hints::{Hints, Place};
pub use info::{AddressFormat, Info, Progress};
pub use load::{
    API_VERSION, DupInfo, FreeInfo, Functions, GetInfo, LIBRARIES, LIBRARY_VARIABLE, Library,
    LoadError, OpenFabric, StrError, ToStr, Version,
};
pub use memory::{Keep, Memory, MemoryRegion, RegionKey, RegisterOptions, RemoteRegion};
pub use object::leaked_objects;
pub use probe::Deferred;
pub use rma::{MAX_PIECES, Message, Piece};
pub use work::{Proof, QueueError, Work, WorkId, WorkQueue};
