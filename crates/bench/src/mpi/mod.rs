//! The same benchmarks over MPI, in the same processes and the same run.
//!
//! # Model
//!
//! With the feature `mpi` the programs are MPI programs where MPI is asked for: variants `mpi-…` of
//! [Faces](crate::faces), the rows of MPI of [`osu`](crate::osu), and `--transport mpi`, where the variants and ways of this
//! library go over windows of MPI. An MPI's launcher starts them: the program calls it itself (`--mpirun` says how), or
//! the user does, and the user then gets the output of rank 0. The ranks make a [`World`](tidegate_core::World) of
//! MPI_COMM_WORLD (or one over each transport), and so both libraries serve the same ranks in turn.
//!
//! | module | holds |
//! |---|---|
//! | `calls` | the calls that are measured |
//! | `job` | how the ranks are started, and meet |
//!
//! # Failures
//!
//! Without the feature, asking for MPI is [`NoMpi`], before any rank is started. An error of MPI ends the job, as MPI
//! has it unless told otherwise.

#[cfg(feature = "mpi")]
pub(crate) mod calls;
#[cfg(feature = "mpi")]
pub(crate) mod job;

#[cfg(feature = "mpi")]
pub use calls::WindowBy;

/// The program was built without MPI, and is asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} goes over MPI, and this program was built without: build it with the feature `mpi`, and say how an MPI job of the same MPI is \
     started, as in `MPICC=mpicc.openmpi cargo bench --bench {bench} --features mpi -- {example} --mpirun 'mpirun.openmpi --oversubscribe'` \
     (Debian: libopenmpi-dev or libmpich-dev, and libclang-dev; one target folder for each MPI)"
)]
pub struct NoMpi {
    /// The option or variant that needs an MPI.
    pub what: String,
    /// The name of the benchmark, as cargo knows it.
    pub bench: &'static str,
    /// Arguments of the benchmark, for the command that the message shows.
    pub example: &'static str,
}
