//! A NIC without hardware, for tests: its wire is memory of the same node.
//!
//! # Model
//!
//! A [`Loopback`] is one rank's endpoint. Its *agent*, one thread for each rank, sleeps on the bell of the doorbells.
//! When a stream has rung, the agent carries out the next armed program of that queue. It does so with the processor,
//! in the peer's memory. It has mapped that memory by handle: a descriptor between processes, a reference between
//! threads. Between threads it makes no system call but sleeping, so Miri can execute it.
//!
//! With this NIC, tests check the contract of [`tidegate_hal::nic`], and what core builds on it, on any machine. It is
//! not meant for production: compared with mapped memory, each message costs two more changes of thread. The *origin's*
//! agent does arithmetic with the processor's atomics, which are coherent with those of the target's host streams.
//!
//! Tests can make firings slow ([`Options::delay`]), or hold them back by hand ([`Gate`]). Then a put's source is
//! really read long after the stream has passed `complete`. They can also set a small budget of armed programs.
//!
//! # Failure
//!
//! Failures are as the contract says. A peer that dies does not disturb the agent, because its memory stays mapped. An
//! agent that is dropped while its gate is closed ends without firing. What its programs keep alive is freed then,
//! since nothing touches it any more.

mod agent;
mod endpoint;
mod gate;
mod handle;
mod options;
mod queue;

pub use endpoint::Loopback;
pub use gate::Gate;
pub use options::Options;
