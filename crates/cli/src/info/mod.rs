//! `tidegate info`: what this machine has, which variables count, and how the ranks of a job reach each other.
//!
//! # Model
//!
//! Without options of a job, the launcher tells of its own machine. With them it also starts a job whose ranks are this
//! program (`--job-only`). They join as any program does. Each tells rank 0 where it is, and by which route it
//! reaches each other rank. Rank 0 prints that, with equal lines as one. So the report is what a program would meet, and
//! not what the launcher expects.
//!
//! A process of another launcher can be such a rank, too: `mpirun -n 4 tidegate info --rank`.

mod args;
mod device;
mod limits;
mod machine;
mod rank;
pub(super) mod report;
pub(super) mod table;
mod told;
mod variables;

pub(super) use args::InfoArgs;
pub(super) use device::{Described, DeviceChoice, OnDevice, SharedGpu};
pub(super) use machine::{host, place};
pub(super) use rank::{options, tell};
#[cfg(test)]
pub(super) use told::{NicTold, Place, runs};
pub(super) use told::{Told, Way};
pub(super) use variables::wrong_here;
