//! A NIC without hardware: its wire is memory of the same node.
//!
//! # Model
//!
//! A [`Loopback`] is one rank's endpoint. An *agent*, one thread a rank, sleeps on the doorbells' bell; when a stream
//! has rung, it carries out the next armed program of that queue, with the processor, in the peer's memory, which it
//! has mapped by handle: a descriptor between processes, a reference between threads. It makes no device call, and
//! (between threads) no system call but sleeping, so that Miri can execute it.
//!
//! It proves the contract of [`tidegate_hal::nic`] and what core builds on it, on any machine; it is slower than
//! mapping the peers themselves, by two changes of thread a message, and is not meant for production. Arithmetic is
//! carried out by the *origin's* agent with the processor's atomics, which are coherent with those of the target's host
//! streams.
//!
//! For tests, firings can be made to take long ([`Options::delay`]) or be held back by hand ([`Gate`]), so that a put's
//! source is really read long after the stream has passed `complete`; and the budget of armed programs can be set
//! small.
//!
//! # Failure
//!
//! As the contract says. A peer that dies does not disturb the agent: what it has mapped stays mapped. An agent that is
//! dropped while its gate is closed ends without firing; what its programs keep alive is freed then, since nothing
//! touches it any more.

mod agent;
mod endpoint;
mod gate;
mod handle;
mod options;
mod queue;

pub use endpoint::Loopback;
pub use gate::Gate;
pub use options::Options;
