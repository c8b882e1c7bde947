//! `--hosts`: ranks on several machines, started over ssh.
//!
//! # Model
//!
//! The launcher runs `ssh HOST tidegate node` for each host. The program there, the *agent* ([`agent`]), starts the
//! ranks of its host, and watches them. Both ends exchange [`frames`] over the standard streams of that command. First
//! the launcher sends the job with its secret, so that the secret is in no command line and no file. Then it sends
//! signals, and the agent sends output and the ends of ranks. The agent of the host with rank 0 takes a port, and
//! reports it. Then all agents start their ranks, which meet there as in any other job.
//!
//! An agent sends output only as far as the launcher has given it [credit](frames::ToHost::Credit). So the report of a
//! rank's end never waits behind output that nobody reads, and ranks wait for a reader as they would on this machine.
//!
//! # Failure
//!
//! If a host cannot be reached, or has no such program, the error is a [`LaunchError::Host`](super::LaunchError::Host)
//! with the error output of ssh. The agents of the other hosts see the end of their input, and end. Each side takes the
//! end of the connection for the end of the other: an agent kills its ranks, and the launcher counts them as failed. If
//! the network is silent, ssh on the launcher's side notices it after 15 s. On the other side, the ssh server has to
//! notice it, and the ranks, which give up peers that are silent.

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
