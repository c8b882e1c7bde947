//! Peers that are reached through a NIC.
//!
//! # Model
//!
//! Each peer of a window is *mapped* (the stream itself moves the data and adds to the peer's words) or reached by a
//! NIC; [`Route`] says which, once, when the window is created. One epoch may serve both kinds. Towards a peer behind
//! the NIC a window half has a [`NicLine`]: a queue of armed programs, and three words of this rank:
//!
//! - the *doorbell*: a stream adds a quantum to it where it would move and signal; each quantum fires the next armed program
//!   (which long staged puts ring for in parts, as they are copied: `window/stages.rs`);
//! - *issued*: how often the outbox's stream has rung, added to by the stream just before it rings;
//! - *sent*: how many firings are through at this end, added to by the NIC.
//!
//! So a post is `[add(doorbell)]`, a complete is `[wait(exposure), add(issued), add(doorbell)]`, and a stream never
//! knows what a NIC is. (Where the NIC has a register for it that the device reaches, a store to that follows the
//! doorbell's add: a step like any other.) Programs are *armed* by the host before the batch that rings is submitted.
//! While a stream is captured the arms are noted instead (`stream/arming.rs`), belong to the graph, and are made at every replay.
//!
//! # Tickets
//!
//! A NIC may read a put's source long after the stream has passed `complete`. So the region holds a *ticket*: "not
//! before *sent* has come to *issued*". Whatever is about to write the region (a kernel with `&mut`, a get into it), or
//! to give it to somebody else (another stream, the host), first enqueues a wait for that; the destination of a get or
//! fetch is kept from readers too. The operand of that wait is *issued*, in device memory, and so the wait can be
//! recorded and replayed like any other.
//!
//! Tickets are noted when an epoch is complete, and never leave the stream that issued them, nor a recorded step: a
//! step waits at its end for what is still under way, which is where the next replay begins. Regions that no NIC has
//! touched have none: that is one look at a pointer.
//!
//! # Failure
//!
//! What is armed cannot be taken back: the next ring would fire it, whatever that is for. So a stream is asked first
//! whether it can have the batch ([`Stream::prepare`](tidegate_hal::device::Stream::prepare)); a refusal has changed
//! nothing then. If it breaks behind the arms all the same, the windows are revoked.
//!
//! The death of any rank poisons *sent* as it poisons all awaited words, so that ticket waits end; the error says
//! `Awaited::Ticket`. A departure in good order does not: that peer has got what it waited for, and the NIC is still to
//! say so here. A skipped ring becomes a poisoned doorbell, and the NIC hands the failure on. Programs hold the memory
//! that they read, so a region that is dropped or forgotten stays until the NIC is through, and longer: as long as the
//! outbox remembers the epoch.
//!
//! Trigger slots of NICs are few: what a window does when there are not enough is its [`Throttle`].

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
