//! Recording a step of a program once, and replaying it.
//!
//! # Model
//!
//! [`Stream::capture`] lends everything that a step needs to the step: regions, inboxes, outboxes, and structs of them.
//! It runs the step once to record what it enqueues, without executing anything, and returns everything that was lent.
//! The program can then replay the [`Graph`] with the *same* regions and window halves. Between replays it can run
//! steps that are not recorded.
//!
//! Inside, the stream has a new brand. So the step can use only what was lent to it, and things that belong to no
//! stream, such as layouts and the program's own memory. The capture borrows the stream exclusively, so nobody else can
//! use it meanwhile.
//!
//! [`Stream::capture_with`] records on two streams, and lends to both. At each replay, the recorded work of a stream
//! comes after the earlier work of that stream, including its part of the last replay, and before its later work. The
//! two streams are ordered only by the hand-offs that the step makes. So work that stays on the second stream (an
//! interior that is computed while the surface is exchanged) can run ahead from replay to replay.
//!
//! If a NIC reaches a peer, each replay first arms the NIC for the epochs of the recording. (If a queue is full, a
//! replay of many times waits in between.) A capture or replay first waits for the NIC's earlier reads and writes of
//! the things that are lent. The recording ends with a wait for those that the step starts.
//!
//! # Failure
//!
//! A step must return what was lent to it, in the same places and in the same state. If it swaps buffers or returns an
//! exposed inbox, the capture fails with [`CaptureError::NotReplayable`](crate::error::CaptureError::NotReplayable).
//! Record two steps in one capture instead.
//!
//! A replay with other regions than those recorded, or with an inbox in another state, fails with
//! [`CaptureError::OtherGraph`](crate::error::CaptureError::OtherGraph). If a rank is its own origin, a step may wait
//! for something that is enqueued before the replay. So the replay, not the capture, checks this, and fails with
//! [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock).
//!
//! A step cannot synchronise, bring regions to the stream, or open windows on it.

mod graph;
mod hand_off;
mod lent;
mod proof;
mod record;

pub use crate::carry::{Carry, Visitor};
pub use graph::{Graph, PairGraph};
pub use record::Captured;

#[cfg(doc)]
use crate::error::Error;
#[cfg(doc)]
use crate::stream::Stream;
