//! tidegate inside MPI jobs.
//!
//! # Model
//!
//! Empty unless the feature `mpi` is on; then it needs an MPI, its `mpicc`, and libclang to be built. `mpi` is rsmpi,
//! the binding that all of this is over. `world` has worlds made of communicators; `windows` goes further: there MPI is
//! what carries epochs, for ranks that can reach each other by nothing else.
//!
//! # Failure
//!
//! `MpiError` says what MPI refused, or which rank could not take part.
#![cfg(feature = "mpi")]

mod calls;
mod error;
pub mod windows;
pub mod world;

pub use error::MpiError;
pub use mpi;
pub use world::FromMpi;
