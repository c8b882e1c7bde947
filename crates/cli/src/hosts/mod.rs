//! `--hosts`: ranks on several machines, started over ssh.
//!
//! # Model
//!
//! The launcher runs `ssh HOST tidegate node` for each host. The program there, the *agent* ([`agent`]), starts the ranks of
//! its host, and stays beside them. Both ends speak in [`frames`] over the standard streams of that command: first what the job
//! is, with its secret, so that this stands on no command line and in no file; then signals one way, and output and the
//! ends of ranks the other. The agent of the host with rank 0 takes a port, and says which; then all start their
//! ranks, which meet there as in any other job.
//!
//! An agent sends output only as far as the launcher has given it [credit](frames::ToHost::Credit). So the end of a rank
//! never waits behind output that nobody reads, and ranks wait for a reader as they would on this machine.
//!
//! # Failure
//!
//! A host that cannot be reached, or has no such program, is a [`LaunchError::Host`](super::LaunchError::Host) with what ssh
//! has said; the agents of the other hosts see the end of their input, and end. Each side takes the end of the
//! connection for the end of the other: an agent kills its ranks, and the launcher counts them as failed. If the network
//! falls silent, ssh notices after 15 s on the launcher's side. On the other side that is for the server to notice, and
//! for the ranks, which give up peers that they do not hear of.

mod agent;
mod connect;
mod file;
mod frames;
mod inlet;
mod link;

pub(super) use agent::agent;
pub(super) use connect::connect;
pub use file::Hosts;
pub(super) use frames::{FromHost, INPUT_CREDIT, ToHost};
pub(super) use link::{HostLink, HostSender};
