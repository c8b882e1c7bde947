//! PMIx, from `libpmix.so.2`: the key-value store of a launcher.
//!
//! # Model
//!
//! A process that was started by a launcher with a PMIx server (Open MPI's `mpirun`, PRRTE, Slurm's `srun --mpi=pmix`)
//! finds that server by its environment. [`Library::load`] opens the installed library. [`Library::init`] connects, and
//! returns a [`Client`]: the identity of this process, and the store. A process *puts* strings and *commits* them.
//! After all processes have been in a *fence*, each can *get* what any of them has put.
//!
//! The library counts its clients. A client that MPI makes in the same process, earlier or later, is the same one, and
//! each must be finalised. A launcher treats a process that ends without that as failed. So dropping a [`Client`]
//! finalises it.
//!
//! The layouts ([`sys`]) are those of versions 3 to 6. A test compares them with an installed header.
//!
//! # Failure
//!
//! - [`LoadError`]: no library, one that is too old, or one that is something else.
//! - [`PmixError`]: the call, the code as a number, and the library's words.
//!
//! All calls block. The server is told a limit ([`Client::fence`], [`Client::get`]), but need not keep to it. A thread
//! that must not wait for ever lets another thread wait for the server.

mod client;
mod error;
mod load;
pub mod sys;

pub use client::Client;
pub use error::{PmixError, Result};
pub use load::{Functions, LIBRARIES, LIBRARY_VARIABLE, Library, LoadError, OLDEST};
