//! Peers that are reached through a NIC.
//!
//! # Model
//!
//! Each peer of a window is *mapped* (the stream itself moves the data and adds to the peer's words) or reached by a
//! NIC. [`Route`] decides this once, when the window is opened. One epoch may serve both kinds. For a peer behind the
//! NIC, a window half has a [`NicLine`]: a queue of armed programs, and three words of this rank:
//!
//! - the *doorbell*: where the stream would move data and signal, it adds a quantum to this word instead. Each quantum
//!   fires the next armed program. (For long staged puts the stream rings in parts, as it copies: `window/stages.rs`.)
//! - *issued*: how often the outbox's stream has rung. The stream adds to it just before it rings.
//! - *sent*: how many firings have ended at this end. The NIC adds to it.
//!
//! So a post is `[add(doorbell)]`, and a complete is `[wait(exposure), add(issued), add(doorbell)]`. A stream never
//! knows what a NIC is. (If the NIC has a register for the purpose, and the device can reach it, a store to the
//! register follows the add to the doorbell. That is a step like any other.) The host *arms* programs before it submits
//! the batch that rings. While a stream is captured, arms are noted instead (`stream/arming.rs`); they belong to the
//! graph, and every replay makes them.
//!
//! # Tickets
//!
//! A NIC may read a put's source long after the stream has passed `complete`. So the region holds a *ticket*, which
//! says: not before *sent* has reached *issued*. Some work writes the region (a kernel with `&mut`, a get into it), or
//! gives it away (to another stream, to the host). Before such work, a wait for the ticket is enqueued. The destination
//! of a get or fetch is kept from readers, too. The operand of that wait is *issued*, in device memory, so the wait can
//! be recorded and replayed like any other.
//!
//! Tickets are noted when an epoch is complete. They never leave the stream that issued them, nor a recorded step. A
//! step ends with a wait for its operations that have not ended, because the next replay begins there. A region that no
//! NIC has touched has no tickets; that costs one look at a pointer.
//!
//! # Failure
//!
//! An armed program cannot be taken back: the next ring would fire it, whatever that ring is meant for. So the stream
//! is first asked whether it can take the batch ([`Stream::prepare`](tidegate_hal::device::Stream::prepare)), and a
//! refusal has no effect. If the submission fails after all, the windows are revoked.
//!
//! The death of any rank poisons *sent*, like all awaited words, so that waits for tickets end with the error
//! `Awaited::Ticket`. A departure in good order does not poison it: that peer has got everything that it waited for,
//! and the NIC will soon report it here. If a stream skips a ring, it poisons the doorbell, and the NIC passes the
//! failure on. Programs hold the memory that they read. So a region that is dropped or forgotten stays until the NIC
//! has finished, and as long as the outbox remembers the epoch.
//!
//! NICs have few trigger slots. A window's [`Throttle`] decides what happens if there are not enough.

mod attached;
mod chunks;
mod line;
mod options;
mod parting;
#[cfg(test)]
mod tests;
mod ticket;

pub(crate) use attached::Attached;
pub use chunks::Chunks;
pub(crate) use line::{LineParts, NicLine, waits};
pub use options::{Route, Throttle, WorldOptions};
pub(crate) use ticket::{Tickets, Touch};
