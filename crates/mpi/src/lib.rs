//! tidegate inside MPI jobs.
//!
//! # Model
//!
//! Empty unless the feature `mpi` is on; then it needs an MPI and its `mpicc` to be built.
#![cfg(feature = "mpi")]

pub mod windows;

pub use mpi;
