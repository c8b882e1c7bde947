//! Other libraries.

use clap::ValueEnum;
use std::fmt;

/// Another library, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// NVSHMEM: on-stream operations, and kernels that communicate.
    Nvshmem,
    /// NCCL: grouped sends and receives, and its device interface.
    Nccl,
    /// MPI: host-synchronised sends and receives, and active RMA.
    Mpi,
    /// No library: a host-synchronised exchange at its best.
    Hostrma,
    /// No library: the cost of a launch, a flag and a byte.
    Floor,
}

impl Peer {
    /// Its name, and that of its program.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Nvshmem => "nvshmem",
            Peer::Nccl => "nccl",
            Peer::Mpi => "mpi",
            Peer::Hostrma => "hostrma",
            Peer::Floor => "floor",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
