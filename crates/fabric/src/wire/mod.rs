//! What the engine asks of a network.
//!
//! # Model
//!
//! A [`Wire`] is one rank's endpoint. It writes to and reads from memory that peers have registered, and brings 64-bit
//! *notices* to a peer's agent. The engine posts an operation with a *cookie*, and polls for its result. Nothing is
//! ordered between operations, except as follows:
//!
//! - [`Event::Done`] says that the operation is over at this end: its source is no longer read. If the operation brings
//!   no notice (or one with the bit [`LAST`]), it is over *at both ends*: a thread that hears of it finds the written
//!   data. If it brings a notice, `Done` says nothing about the target. The engine finds out whether the notice has
//!   come by reading the word that it names.
//! - A read that is posted after a write to the same peer finds the written data, once the write's notice was heard
//!   there.
//! - The target sees a notice that comes with a write ([`Op::Write`]) after that write's data. If the write failed, it
//!   does not see the notice.
//! - The target sees a notice with the bit [`LAST`] after every other notice that had come to the same endpoint before.
//! - A notice comes once or never. Notices are kept until somebody polls, however many there are.
//!
//! So a signal comes after all of its data, whatever order the provider keeps, in each of three cases. It is posted
//! after the [`Done`](Event::Done) of all data. It goes with the only write. Or it counts once as many parts have come
//! as there are writes.
//!
//! # Failure
//!
//! [`Posted::Full`] is back-pressure: the engine tries again. An operation that fails ends in [`Event::Failed`], once.
//! A peer that has died may stay silent. Only the control plane notices that.

pub mod chain;
pub mod libfabric;
#[cfg(test)]
#[path = "../../../fake/src/wire/mod.rs"]
pub mod memory;
mod op;

use std::time::Duration;

use tidegate_hal::nic::{Keep, NicError};

use chain::{Chain, Signals};
pub use op::{Event, LAST, Limits, Op, Posted};

/// One rank's endpoint of a network. Only one thread calls it at a time.
///
/// # Safety
///
/// Implementations do what this module says. They touch only registered memory, and the memory that operations name,
/// between the post and its event. After the wire is dropped, they may still touch memory of operations that had no
/// event by then. That ends when the values that they were told to [`keep`](Wire::keep) are dropped.
pub unsafe trait Wire: Send + 'static {
    /// A peer's registered memory.
    type Remote: Send + Sync + 'static;

    /// The name of the network, for messages.
    fn name(&self) -> &'static str;

    /// The limits of the network.
    fn limits(&self) -> Limits;

    /// Where peers find this endpoint.
    fn address(&self) -> Vec<u8>;

    /// Tells the wire the peers' addresses. A rank without an endpoint has an empty one.
    ///
    /// # Errors
    ///
    /// [`NicError::BadKey`], [`NicError::System`].
    fn connect(&mut self, addresses: &[Vec<u8>]) -> Result<(), NicError>;

    /// Sets how long the network may accept nothing towards a peer. Only a wire that itself tries again needs to know.
    /// Called before anything is posted. A [`twin`](Self::twin) has the limit of its wire.
    fn set_silence(&mut self, limit: Duration) {
        let _ = limit;
    }

    /// Makes memory reachable for peers. Returns the key that peers need, and a value that ends the registration when
    /// it is dropped.
    ///
    /// # Errors
    ///
    /// [`NicError::Exhausted`], [`NicError::System`].
    ///
    /// # Safety
    ///
    /// The memory is memory of the host, and is live as long as `keep`. Peers are entitled to their accesses there.
    unsafe fn register(
        &mut self,
        base: *mut u8,
        bytes: usize,
        keep: Keep,
    ) -> Result<(Vec<u8>, Keep), NicError>;

    /// Makes a peer's memory known, by the key from its [`register`](Self::register).
    ///
    /// # Errors
    ///
    /// [`NicError::BadKey`].
    fn import(&mut self, peer: usize, key: &[u8], bytes: usize) -> Result<Self::Remote, NicError>;

    /// Begins an operation towards a peer.
    ///
    /// # Errors
    ///
    /// The network's permanent refusal. Then no event comes.
    ///
    /// # Safety
    ///
    /// Until the event, the memory here is live, and nobody else accesses it (for a write, nobody else writes it). The
    /// offset and the bytes are within the remote memory, and accesses there are ordered with those of others.
    unsafe fn post(
        &mut self,
        peer: usize,
        op: Op<'_, Self::Remote>,
        cookie: u64,
    ) -> Result<Posted, NicError>;

    /// Lets operations make progress, and appends the events.
    ///
    /// # Errors
    ///
    /// The endpoint has failed. No event comes any more.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), NicError>;

    /// Keeps a value until the network touches no memory for this endpoint any more. That is until it is dropped, or
    /// longer, if others still hold the endpoint open. Before a wire is dropped, the engine passes it the memory of
    /// operations in progress. That memory holds nothing that [`register`](Self::register) returned, because that may
    /// keep the endpoint open.
    fn keep(&mut self, what: Keep);

    /// Whether a [`Sleeper`] would wake for everything that has not been polled yet.
    fn may_sleep(&mut self) -> bool;

    /// Whether hardware fires programs by itself, so that [`chain`](Self::chain) makes queues.
    fn fires(&self) -> bool {
        false
    }

    /// Makes a queue towards a peer that hardware fires, for up to `budget` programs at a time. `None` if the software
    /// engine must fire.
    ///
    /// # Errors
    ///
    /// [`NicError::Exhausted`].
    fn chain(
        &mut self,
        peer: usize,
        budget: usize,
    ) -> Result<Option<Box<dyn Chain<Self::Remote>>>, NicError> {
        let _ = (peer, budget);
        Ok(None)
    }

    /// Makes another endpoint of the same kind, to receive or send more at a time. `None` if the wire has only one.
    ///
    /// # Errors
    ///
    /// [`NicError::System`].
    fn twin(&self) -> Result<Option<Self>, NicError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Whether threads of this process copy everything that is sent and received. Then several endpoints, each with a
    /// thread, carry more than one.
    fn copies(&self) -> bool {
        false
    }

    /// How the wire's chains signal.
    fn signals(&self) -> Signals {
        Signals::Notice
    }

    /// The sleeper for the agent.
    fn sleeper(&self) -> Box<dyn Sleeper>;
}

/// Sleeps until something may have happened on a wire.
pub trait Sleeper: Send + Sync {
    /// Returns when there may be something to poll, when [`wake`](Self::wake) was called since the last sleep, or after
    /// `limit`.
    fn sleep(&self, limit: Duration);

    /// Ends the sleep, or the next one.
    fn wake(&self);

    /// Whether events of the wire end the sleep. If not, only [`wake`](Self::wake) and the limit do, so the sleeper
    /// must look regularly.
    fn hears(&self) -> bool {
        true
    }
}
