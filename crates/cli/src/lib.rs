//! Starts the ranks of a job on this host, or on several, watches them, and leaves nothing behind.
//!
//! # Model
//!
//! A [`Job`] is a program and a number of ranks. Each rank is a process in a process group of its own, with the
//! environment that [`TcpControl::from_env`](tidegate_boot::TcpControl::from_env) reads: a fresh random secret, and a port on
//! the loopback address that is taken before the first rank starts: rank 0 inherits the listening socket. One thread
//! starts the ranks, reads their output, line by line, and waits for their ends. Others print it: as long as nobody reads
//! that, and some of it is kept, nothing more is read from the ranks, and they wait as they would for any reader.
//!
//! The ranks can be spread over several [`Nodes`], in one of two ways:
//!
//! - *by name*: each node has a `TIDEGATE_NODE` of its own, and so no rank maps memory of another node. All else is one
//!   machine's: the ranks share its network.
//! - on a [`Bed`]: each node is also a network namespace, and what goes from one to another takes a wire that can be slow, lossy,
//!   or cut. Rank 0 listens at its node's address, where nobody but the nodes can come.
//!
//! Ranks can also run on other [`Hosts`], which are reached by ssh: an agent there starts them and watches them, and the
//! launcher does with what it says as with what it sees here.
//!
//! A rank can be bound to processors and memory ([`Bind`]); so are all threads and programs that it starts.
//!
//! # Failure
//!
//! A rank that is stopped (`SIGSTOP`) keeps the others waiting, and cannot say so: the launcher does, after about 5 s, and
//! when it goes on again. After `TIDEGATE_SILENCE_MS` the others give it up.
//!
//! A rank fails by its exit status. One that ends with 0 and has not left the job (`process::exit(0)` drops no world) is
//! noticed by the others, who fail: so the first failure is said with the ranks that had ended before it. Whether those
//! had left only the others know.
//!
//! When a rank fails, the others get [`Job::grace`] to end by themselves with errors of their own; then they get
//! `SIGTERM`, and a moment later `SIGKILL`. What has been printed waits for who reads it, who may be a pager: the reason of
//! a failure comes last. After a signal to end, what nobody has read for as long as the grace is lost. When a rank ends, what is left of its process group is killed. When the
//! launcher is killed, the kernel kills the ranks (`PR_SET_PDEATHSIG`), and a guard process their groups.

mod bed;
mod bind;
mod child;
mod cli;
mod error;
mod guard;
mod hosts;
mod job;
mod meeting;
mod monitor;
mod nodes;
mod outcome;
mod output;
mod printer;
mod rank;
mod rank_pipe;
mod running;
mod say;
mod seats;
mod signals;
mod stopped;

pub use bed::{BedArgs, Cut, WireArg};
pub use bind::{Bind, BindError};
pub use cli::{Cli, RunArgs, main};
pub use error::LaunchError;
pub use hosts::Hosts;
pub use job::{Input, Job, Output};
pub use nodes::Nodes;
pub use outcome::{Outcome, RankOutcome};
pub use running::{Remote, Running};
pub use rustix::process::Signal;
pub use tidegate_testbed::{Bed, BedError};
