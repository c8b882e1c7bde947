//! tidegate inside MPI jobs.
//!
//! # Model
//!
//! Without the feature `mpi` this crate is empty. With it, the build needs an MPI, its `mpicc`, and libclang. `mpi` is
//! rsmpi, the binding that everything here uses. `world` makes worlds from communicators. In `windows`, MPI is also the
//! transport of epochs, for ranks that nothing else connects.
//!
//! # Failure
//!
//! `MpiError` names the call that MPI refused, or the rank that could not take part.
#![cfg(feature = "mpi")]

mod calls;
mod error;
pub mod windows;
pub mod world;

pub use error::MpiError;
pub use mpi;
pub use world::FromMpi;
