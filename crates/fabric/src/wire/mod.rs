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
//! So a signal comes after all of its data, whatever order the provider keeps, in each of three cases: it is posted
//! after the [`Done`](Event::Done) of all data, it goes with the only write, or it counts once as many parts have come
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
/// Implementations do what this module says, touch no memory but what operations name, between the post and its event,
/// and what was registered; and they touch none of it any more when they have been dropped, but what operations name
/// that had no event by then: that, for as long as what they were told to [`keep`](Wire::keep) is kept.
pub unsafe trait Wire: Send + 'static {
    /// A peer's registered memory.
    type Remote: Send + Sync + 'static;

    /// What the network is called, for messages.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn limits(&self) -> Limits;

    /// Where peers find this endpoint.
    fn address(&self) -> Vec<u8>;

    /// Learns where the peers are; an empty address is that of a rank that has none.
    ///
    /// # Errors
    ///
    /// [`NicError::BadKey`], [`NicError::System`].
    fn connect(&mut self, addresses: &[Vec<u8>]) -> Result<(), NicError>;

    /// Makes memory reachable for peers: what they need for it, and what ends that when it is dropped.
    ///
    /// # Errors
    ///
    /// [`NicError::Exhausted`], [`NicError::System`].
    ///
    /// # Safety
    ///
    /// The memory is the host's, and live as long as `keep`; peers may do there what they do.
    unsafe fn register(
        &mut self,
        base: *mut u8,
        bytes: usize,
        keep: Keep,
    ) -> Result<(Vec<u8>, Keep), NicError>;

    /// Makes a peer's memory known by what its [`register`](Self::register) gave.
    ///
    /// # Errors
    ///
    /// [`NicError::BadKey`].
    fn import(&mut self, peer: usize, key: &[u8], bytes: usize) -> Result<Self::Remote, NicError>;

    /// Begins an operation towards a peer.
    ///
    /// # Errors
    ///
    /// What the network refuses for good; no event comes then.
    ///
    /// # Safety
    ///
    /// Until the event the memory here is live and is accessed by nobody else (read by nobody that minds, for a write);
    /// the offset and the bytes are within the remote memory, and what is done there is ordered with what others do
    /// there.
    unsafe fn post(
        &mut self,
        peer: usize,
        op: Op<'_, Self::Remote>,
        cookie: u64,
    ) -> Result<Posted, NicError>;

    /// Goes on with what is under way, and appends what has happened.
    ///
    /// # Errors
    ///
    /// What ends the endpoint: no event comes any more.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), NicError>;

    /// Keeps something until the network touches no memory for this endpoint any more: till it is dropped, or for longer,
    /// where others have it open still. An endpoint is given the memory of operations that are under way
    /// before it is dropped. That holds nothing that [`register`](Self::register) gave, which may keep the endpoint open.
    fn keep(&mut self, what: Keep);

    /// Whether nothing has happened that a [`Sleeper`] would not wake for.
    fn may_sleep(&mut self) -> bool;

    /// A queue towards a peer that hardware fires, for so many programs at a time. `None`: the software engine fires.
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

    /// Another endpoint of the same kind, for what peers send or to send more at a time; `None` if one must do.
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

    /// Whether it is threads of this process that copy what is sent and what comes: then several endpoints, each with a
    /// thread, carry more than one.
    fn copies(&self) -> bool {
        false
    }

    /// How its chains signal.
    fn signals(&self) -> Signals {
        Signals::Notice
    }

    /// What the agent sleeps on.
    fn sleeper(&self) -> Box<dyn Sleeper>;
}

/// Sleeps until something may have happened on a wire.
pub trait Sleeper: Send + Sync {
    /// Returns when there may be something to poll, when somebody has called [`wake`](Self::wake) since the last call,
    /// or after `limit`.
    fn sleep(&self, limit: Duration);

    /// Ends the sleep, or the next one.
    fn wake(&self);

    /// Whether what comes on the wire ends the sleep. If not, only [`wake`](Self::wake) and the limit do, and the
    /// sleeper has to look now and then.
    fn hears(&self) -> bool {
        true
    }
}
