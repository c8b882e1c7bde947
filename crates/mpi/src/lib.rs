//! tidegate inside MPI jobs.
//!
//! # Model
//!
//! Empty unless the feature `mpi` is on; then it needs an MPI, its `mpicc`, and libclang to be built. [`mpi`] is rsmpi, the binding that
//! all of this is over.
//!
//! [`FromMpi`] makes a world of a communicator: its ranks are those of the communicator, in the same order. MPI is used to *meet*, and no
//! longer: rank 0 listens, and says where and with which secret over a duplicate of the communicator; the duplicate is freed, and from there
//! on the ordinary control plane of `tidegate-boot` carries on, with its heartbeats, deaths and descriptors. So the world outlives the
//! communicator, and MPI itself; there may be as many worlds as there are communicators; and nothing asks for more of MPI than
//! calls by the thread that makes the world.
//!
//! ```no_run
//! use tidegate_core::World;
//! use tidegate_host::Host;
//! use tidegate_mpi::{FromMpi as _, mpi};
//!
//! let universe = mpi::initialize().expect("nobody has initialised MPI before");
//! let world: World<Host> = World::from_mpi(&universe.world())?;
//! println!("rank {} of {}", world.rank(), world.size());
//! # Ok::<(), tidegate_core::Error>(())
//! ```
//!
//! [`windows`] go further: there MPI is what carries epochs, for ranks that can reach each other by nothing else.
//!
//! # Failure
//!
//! [`MpiError`] says what MPI refused, or which rank could not take part; all ranks come to the same verdict, if MPI lets
//! them. A rank that dies later is noticed by the control plane, as in every job; and most launchers of MPI then end the job.
#![cfg(feature = "mpi")]

mod calls;
mod error;
pub mod windows;
mod world;

pub use error::MpiError;
pub use mpi;
pub use world::FromMpi;
