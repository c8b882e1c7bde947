//! Recording a step of a program once, and replaying it.
//!
//! # Model
//!
//! [`Stream::capture`] lends what a step needs (regions, inboxes, outboxes, structs of them) under a brand that exists
//! only inside, runs the step once to record what it enqueues, executes nothing, and gives everything back. The
//! [`Graph`] can then be replayed with the *same* regions and window halves, mixed with eager steps.
//!
//! Because the brand inside is new, the step can use nothing that is at home on a stream and was not lent to it (layouts
//! and the program's own memory are at home on none, and may be borrowed); because the stream is taken exclusively, it
//! can be used by nobody else meanwhile.
//!
//! [`Stream::capture_with`] records on two streams, and lends to both. What is recorded on a stream comes, at each
//! replay, after what that stream was given before, and before what it is given later: the last replay's part on *that*
//! stream, too. Between the two streams nothing is ordered but by the hand-offs that the step makes. So what stays with
//! the second stream (an interior that is computed while the surface is exchanged) goes on by itself, from replay to
//! replay.
//!
//! Where a NIC reaches a peer, what the host arms for an epoch belongs to the recording, and is armed again at each
//! replay before that is submitted (a full queue makes a replay of many times wait in between). Reads and writes of a
//! NIC that are under way when the capture or a replay begins are waited for first; those that the step leaves under
//! way are waited for at its end.
//!
//! # Failure
//!
//! A step that ends with other things than it was lent, or with the same in other places (swapped buffers) or in
//! another state (an inbox that was posted), is refused as [`CaptureError::NotReplayable`](crate::error::CaptureError::NotReplayable): record two steps in one capture
//! instead. A replay with other regions than those recorded, or with an inbox that is exposed where it was not then (or
//! to another group), is refused as [`CaptureError::OtherGraph`](crate::error::CaptureError::OtherGraph). Where a rank is its own origin, a step may wait for what is
//! enqueued before the replay; so it is the replay that is refused as [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock), and not the recording.
//! Synchronisation, bringing regions to the stream, and creating windows on it are errors inside.

mod graph;
mod hand_off;
mod lent;
mod record;

pub use crate::carry::{Carry, Visitor};
pub use graph::{Graph, PairGraph};
pub use record::Captured;

#[cfg(doc)]
use crate::error::Error;
#[cfg(doc)]
use crate::stream::Stream;
