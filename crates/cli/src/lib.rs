//! Starts the ranks of a job on this host or on several, watches them, and leaves no process behind.
//!
//! # Model
//!
//! A [`Job`] is a program and a number of ranks. Each rank is a process in a process group of its own. It gets the
//! environment that [`TcpControl::from_env`](tidegate_boot::TcpControl::from_env) reads, with a new random secret, and
//! a port on the loopback address. The port is taken before the first rank starts, and rank 0 inherits the listening
//! socket.
//!
//! One thread starts the ranks, reads their output line by line, and waits for their ends. Other threads print the
//! output. If nobody reads it, a limited amount is kept, and then the launcher reads no more from the ranks. So the
//! ranks wait, as they would for any slow reader.
//!
//! The ranks can be spread over several [`Nodes`], in one of two ways:
//!
//! - *By name*: each node has its own `TIDEGATE_NODE`, so no rank maps the memory of another node. Otherwise all ranks
//!   are on one machine, and share its network.
//! - On a [`Bed`]: each node is also a network namespace. Data between nodes goes over a wire that can be slow, lossy,
//!   or cut. Rank 0 listens at its node's address, which only the nodes can reach.
//!
//! Ranks can also run on other [`Hosts`], over ssh. An agent on each host starts the ranks and watches them, and the
//! launcher handles the agent's messages like events on this host.
//!
//! A rank can be bound to processors and memory ([`Bind`]). The binding holds for all threads and programs that the
//! rank starts.
//!
//! # Failure
//!
//! A rank that is stopped (`SIGSTOP`) keeps the others waiting, and cannot say so. So the launcher reports it after
//! about 5 s, and reports when it goes on. After `TIDEGATE_SILENCE_MS` the other ranks give it up.
//!
//! A rank fails by its exit status. If a rank ends with status 0 and has not left the job (`process::exit(0)` drops no
//! world), the other ranks notice that, and fail. So the report of the first failure lists the ranks that had ended
//! before. Only the other ranks know whether these had left.
//!
//! When a rank fails, the others get [`Job::grace`] to end by themselves, with errors of their own. Then they get
//! `SIGTERM`, and a moment later `SIGKILL`. The launcher waits until the output has been read, since the reader may be
//! a pager, and the reason of a failure comes last. After a signal to end, output is lost that nobody has read within
//! the grace.
//!
//! When a rank ends, the rest of its process group is killed. When the launcher is killed, the kernel kills the ranks
//! (`PR_SET_PDEATHSIG`), and a guard process kills their groups.

mod bed;
mod bind;
mod causes;
mod child;
mod cli;
mod doctor;
mod error;
mod failure;
mod guard;
mod hosts;
mod info;
mod job;
mod meeting;
mod monitor;
mod nodes;
mod options;
mod outcome;
mod output;
mod printer;
mod rank;
mod rank_pipe;
mod running;
mod say;
mod seats;
mod signals;
mod spawn;
mod stopped;
mod trace;

pub use bed::{BedArgs, Cut, WireArg};
pub use bind::{Bind, BindError};
pub use cli::{Cli, RunArgs, main};
pub use error::LaunchError;
pub use hosts::Hosts;
pub use job::{Input, Job, Output};
pub use nodes::Nodes;
pub use options::JobArgs;
pub use outcome::{Outcome, RankOutcome};
pub use running::{Remote, Running};
pub use rustix::process::Signal;
pub use tidegate_testbed::{Bed, BedError};
