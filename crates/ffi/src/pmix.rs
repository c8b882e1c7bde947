//! PMIx, from `libpmix.so.2`: the key-value store of a launcher.
//!
//! # Model
//!
//! A process that a launcher with a PMIx server started (Open MPI's `mpirun`, PRRTE, Slurm's `srun --mpi=pmix`) finds
//! that server by its environment. [`Library::load`] opens what is installed, [`Library::init`] connects, and gives a
//! [`Client`]: who this process is, and the store. A process *puts* strings, *commits* them, and once all processes
//! have been in a *fence*, each can *get* what any of them has put.
//!
//! The library counts its clients: one that MPI has, or makes later, in the same process is no other than this one, and
//! each has to be finalised. A launcher holds it against a process that it ends with a client that was not: so dropping
//! a [`Client`] finalises it.
//!
//! The layouts ([`sys`]) are those of versions 3 to 6; a test compares them with an installed header.
//!
//! # Failure
//!
//! - [`LoadError`]: no library, one that is too old, one that is something else.
//! - [`PmixError`]: the call, the code as a number, and the library's words.
//!
//! All calls block. The server is told a limit ([`Client::fence`], [`Client::get`]), but need not keep to it. A thread that
//! must not wait for ever lets another thread wait for the server.

mod client;
mod error;
mod load;
pub mod sys;

pub use client::Client;
pub use error::{PmixError, Result};
pub use load::{Functions, LIBRARIES, LIBRARY_VARIABLE, Library, LoadError, OLDEST};
