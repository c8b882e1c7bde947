//! What the engine asks of a network whose hardware fires programs by itself.
//!
//! # Model
//!
//! A [`Chain`] is a queue of *firings* towards one peer. The hardware receives everything that a firing does in advance
//! ([`Chain::queue`]). A strike fires the next one. A strike is a store by the stream ([`Chain::register`]), or a call
//! of [`Chain::fire`] by an agent that has seen the doorbell. From there to the signal, no software of this end takes
//! part.
//!
//! A chain promises what [`tidegate_hal::nic`] asks of a queue: a firing's signal comes after all of its data is
//! delivered, and after the signal before it. A firing is *through* when its signal is delivered. A firing may be
//! struck before it is queued. It then begins when it is queued.
//!
//! [`Signals`] says how a signal is made:
//!
//! - [`Notice`](Signals::Notice): the signal is a write that brings a notice to the target's agent. The agent adds to
//!   the word and rings the bell, as in the software engine. So one thread makes all changes to a word.
//! - [`Add`](Signals::Add): the signal is an add to the target's word by the target's NIC, and no thread there is told.
//!   So the target's endpoint counts the writes to its memory ([`Event::Written`]), and a turn of the engine rings the
//!   rank's bell when that count has moved. A stream that spins, and a GPU, see the word at once, and need no bell.
//!
//! # Poison and adds by a NIC
//!
//! With [`Signals::Add`], two writers share one word. To a processor, the NIC's add is a read and a separate write. If
//! a processor poisons the word between the two, the poison is lost. The add is never lost, because a processor's
//! read-modify-write holds the cache line to its end. So:
//!
//! - An origin that gives up sends no notice. Its NIC writes the one byte that holds only the poison bit. That write
//!   follows the adds of the same origin, which is the only one that adds to the word.
//! - A poison by the *target* itself (a peer has died, a window was revoked) can be lost to an add that is on its way.
//!   Such an add ends in bounded time, whatever happens to its origin. So it suffices to poison again as long as
//!   somebody may wait. Core does that if [`Nic::adds`](tidegate_hal::nic::Nic::adds).
//!
//! # Failure
//!
//! An operation that fails is not counted, so whatever waits for its count never begins: its own signal, and every
//! later signal of the chain. [`Chain::poll`] reports the failure, and the engine gives the queue up. Works that were
//! queued and never fire stay with the hardware, together with their memory, unless [`Chain::cancel`] can take them
//! back.
//!
//! [`Event::Written`]: super::Event::Written

use tidegate_hal::nic::{Keep, NicError, Register};

use super::op::{Op, Posted};

/// How hardware tells a peer that data is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// By 64 bits for the target's agent, which come with the last write.
    Notice,
    /// By an add to the target's word.
    Add,
}

/// The end of a firing.
pub struct Signal<'a, R> {
    /// The notice for the target's agent.
    pub notice: u64,
    /// The word that the notice names: the peer's memory, and the offset there.
    pub word: (&'a R, usize),
}

/// Why a chain has stopped.
pub struct Stuck {
    /// The number (from 0) of the first firing that will not be through, as far as is known. No earlier one has failed.
    pub at: u64,
    /// Why.
    pub error: NicError,
}

/// Firings towards a peer, whose registered memory is `R`.
pub trait Chain<R>: Send + 'static {
    /// How many firings can be queued and not yet through; at least 1.
    fn depth(&self) -> usize;

    /// Checks whether a program of `pieces` pieces fits at all.
    ///
    /// # Errors
    ///
    /// [`NicError::Unsupported`].
    fn fits(&self, pieces: usize) -> Result<(), NicError>;

    /// The register in which a store of 1 fires the next program, if there is one.
    fn register(&self) -> Option<Register>;

    /// Says, before anything is queued, that streams store to the register. Then nobody calls [`fire`](Self::fire).
    fn struck_by_streams(&mut self);

    /// How many stores of a stream, which has rung `rung` times, have not arrived at the register.
    fn missing(&self, rung: u64) -> u64;

    /// Queues the next firing. [`Posted::Full`] means that not all of it could be queued. Then try again with the same
    /// arguments, after [`poll`](Self::poll).
    ///
    /// # Errors
    ///
    /// The network's permanent refusal.
    ///
    /// # Safety
    ///
    /// `keep` keeps the memory of this end that the pieces name. From the firing's strike until it is through, nobody
    /// else accesses that memory (for a write, nobody else writes it). Offsets are within the remote memory, and
    /// accesses there are ordered with those of others. No two calls overlap.
    unsafe fn queue(
        &mut self,
        pieces: &[Op<'_, R>],
        signal: &Signal<'_, R>,
        keep: &Keep,
    ) -> Result<Posted, NicError>;

    /// Strikes `firings` times. Not to be called if streams strike by themselves.
    ///
    /// # Errors
    ///
    /// The network's permanent refusal.
    fn fire(&mut self, firings: u64) -> Result<(), NicError>;

    /// How many firings are through. `rung` returns how often the doorbell has been rung by now.
    ///
    /// # Errors
    ///
    /// An operation has failed. No firing after it will be through.
    fn poll(&mut self, rung: &dyn Fn() -> u64) -> Result<u64, Stuck>;

    /// The number (from 0) of the firing whose operation with this context has failed. `None` if the operation is not
    /// of this chain.
    fn failed(&mut self, context: usize) -> Option<u64>;

    /// Takes back firings that have not begun, as far as possible. Nothing is queued after this.
    fn cancel(&mut self);
}
