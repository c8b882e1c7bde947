//! What a NIC must do: carry out programs when a stream rings.
//!
//! # Model
//!
//! A [`Nic`] is one rank's endpoint. Memory that peers may reach through it is *registered*. The [`Key`] of the
//! registration goes to the peers over the control plane, and becomes a [`RemoteMemory`] there. For each peer, each
//! half of a window has a [`NicQueue`]: a first-in first-out queue of *armed* programs. A program is prepared once, and
//! armed any number of times.
//!
//! A stream knows nothing of this. It adds [`QUANTUM`] to the queue's *doorbell*, an ordinary word. Each such quantum
//! *fires* the next armed program:
//!
//! 1. The NIC makes the program's transfers, in any order. It waits until all of them are delivered: a put's data is
//!    visible at the target, and a get's data has arrived here.
//! 2. It then adds `QUANTUM` to the program's remote word, and rings that word's bell.
//! 3. When the firing no longer reads or writes memory of this end, it adds `QUANTUM` to the queue's local *sent* word,
//!    and rings that word's bell. (This may happen before the signal of step 2 has arrived.)
//!
//! **A ring in parts.** A stream may fill the memory that a program sends from. The first part of it can then travel
//! while the stream fills the rest. For this, each transfer has a [*stage*](Transfer::stage), and a ring may come in
//! parts ([`part`]): 1 for each stage but the last, then the rest of the quantum. The count of the doorbell beyond
//! whole quanta says how many parts of the next firing have come. After `n` parts, the transfers of the stages before
//! `n` may be made. The signal and the sent word stand for the whole ring. A stream waits for nothing between the parts
//! of a ring. An engine that profits from parts says so ([`NicQueue::takes_parts`]), and gets them if that pays. Any
//! other engine waits for the whole ring.
//!
//! Firings of one queue happen in order: step 2 of one comes after step 2 of the one before, and so does step 3. The
//! number of a firing, from 0, is the number of the epoch towards that peer. Its parity chooses the buffer of a side
//! with a `flip`. The queue counts firings; it does not read the number from a word, which may have moved on. (Core
//! rings at most two more times than the peer has been told of, because each ring needs an exposure. An engine over a
//! network that reorders may rely on that.)
//!
//! If the NIC has a register for the doorbell ([`NicQueue::register`]), and the device can reach it
//! ([`Device::map_register`](crate::device::Device::map_register)), the stream also stores to the register, right after
//! the add. Then no software stands between the stream and the transfer. The doorbell still counts how often the stream
//! has rung, and the poison of a stream that fails still goes there.
//!
//! As in [`crate::batch`], all adds are releases, and the look at the doorbell is an acquire. So the NIC reads what the
//! stream did before it rang, and the waiter sees what the NIC wrote before it added.
//!
//! # Failure
//!
//! - A stream that fails poisons the doorbell instead of ringing it. The queue then fires what had been rung for, and
//!   *gives up* the rest: it poisons the sent word, and the remote word of every armed program that will not fire. So
//!   every wait at both ends comes to an end. Later arms are refused with [`NicError::GivenUp`].
//! - If the doorbell is poisoned between two parts of a ring, transfers may already have been made. Their data was in
//!   place, and their target was exposed. The queue gives up when they are over at this end, and that firing gives no
//!   signal.
//! - A transfer that fails gives up the queue in the same way, and never adds to the remote word. (Some providers fire
//!   a chained signal although the operation before it failed. An engine must not rely on such a chain.)
//! - A firing may be through at this end before its signal has arrived. An engine may find out later that a signal was
//!   lost, and give up the queue then. But it releases the queue ([`QueueConfig::keep`]), and is quiet
//!   ([`Nic::quiesce`]), only when all signals have arrived, or when nobody waits for them any more.
//! - An endpoint that breaks gives up all of its queues, and says so by [`Connection::failed`]. Core then ends the
//!   waits of the peers through the control plane.
//! - A dead peer may cause no error at all. Core ends the waits for it by poisoning the sent words towards it. An
//!   engine need not notice the death.
//! - A peer that leaves or dies takes its endpoint along. This end may see a failed transfer before the control plane
//!   reports anything. So an engine holds such a failure back, and asks ([`Connection::asks`]). The answer gives the
//!   failure its true cause: see [`News`].
//!
//! # Updates
//!
//! A transfer that *updates* the peer's elements (an accumulate, a fetch-and-op, a compare-and-swap) is atomic with
//! what ranks of the peer's node do there, if the NIC says so ([`Atomics::Coherent`]). A NIC whose hardware cannot do
//! that lets the peer's own agent make the updates, with the processor's atomics. The protocol of such an engine is:
//!
//! 1. When the ring has come, all copies of the program are made first. Then the operands travel to the peer in
//!    *requests*, in the order of the transfers. A request is as long as a piece of memory that the peer has for this
//!    queue, so long transfers take several.
//! 2. The peer's agent makes the updates of a request, each once. Then it sends an *answer* with the old values. If the
//!    request is the program's last, the agent then adds to the program's word, as if the signal had come.
//! 3. When the answer has come, this end puts the old values where they belong, and sends the next request. After the
//!    last answer, the firing is through, and the sent word counts.
//!
//! So a queue has one request in progress, and a firing of updates waits for the peer's agent. It never waits for the
//! peer's *program*: two ranks that fetch from each other get their answers although neither has come to its wait. An
//! answer takes no trigger slot, so no ring depends on the slot of another rank.
//!
//! The memory for requests and answers belongs to a registration that says that it is updated ([`Memory::updated`]).
//! The peer answers by its own queue's registration in the other direction ([`QueueConfig::back`]).
//!
//! An update that is applied stays so. If a request or its answer is lost, or if the peer dies, the queue gives up, and
//! nobody knows whether the request was applied. Old values never come in part: those of a request come together, or
//! the queue gives up.
//!
//! # Throttling
//!
//! Triggers are few. An endpoint has a *budget* of them ([`Nic::budget`], at least 1), which all of its queues share. A
//! NIC's triggers are divided among the ranks of its node ([`Connection::ranks_on_node`]). An armed program takes a
//! slot of the budget if one is free. Otherwise it stands *in line*, in host memory. It returns the slot when it is
//! through. [`NicQueue::arm`] never waits, and never fails for lack of room:
//!
//! - When a slot comes back, a program in line gets it. Programs that have been rung for come first, in the order of
//!   their rings. Then come the others, queue by queue.
//! - One slot is reserved for programs that have been rung for. Those end by themselves, so the slot always comes back.
//!   (If the peer is gone and its wire never ends an operation, the engine gives the queue up.) Hence every ring is
//!   answered in the end, whatever the budget is: no program depends on the slot of one that has not been rung for.
//!
//! So an engine fires as if the budget were infinite, only later. [`crate::slots`] does this accounting for all
//! engines. Whether to wait for room is a policy of the layers above ([`Nic::armed`], [`Nic::await_armed`],
//! [`NicQueue::counts`]).
//!
//! # Who validates what
//!
//! Core guarantees what the `unsafe` methods list. It also guarantees that every ring was armed before the batch that
//! rings was submitted, and that one half at a time arms a queue. An engine does not check this again, except by
//! `debug_assert`. If only the engine can know that a program is impossible, it answers [`NicError::Unsupported`] when
//! the program is prepared: nothing has been enqueued by then.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Action, QUANTUM, Shape, Side};
use crate::control::Handle;
use crate::device::{DeviceError, Helper};
use crate::memory::Ptr;

/// Keeps something alive as long as it is held.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// Why a NIC refused something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// There are not enough queues, registrations or triggers.
    #[error("the {nic} NIC is out of {what}: {detail}")]
    Exhausted {
        /// Which kind of NIC.
        nic: &'static str,
        /// What ran out.
        what: &'static str,
        /// What was asked for.
        detail: String,
    },
    /// The NIC cannot do this.
    #[error("not supported by the {nic} NIC: {what}")]
    Unsupported {
        /// Which kind of NIC.
        nic: &'static str,
        /// What it cannot do.
        what: String,
    },
    /// An epoch or a replay needs more trigger slots than are free, and its window has chosen not to wait for them.
    /// Nothing was armed.
    #[error(
        "{needed} operations need a trigger slot, but only {room} of the NIC's {budget} are free, and the window does not wait for more: synchronise first"
    )]
    NoRoom {
        /// How many would be armed.
        needed: usize,
        /// How many slots are free.
        room: usize,
        /// How many there are.
        budget: usize,
    },
    /// The queue has given up, because the stream that rings it has failed, or a transfer has.
    #[error(
        "the NIC's queue has given up, because its stream or a transfer has failed: open a new window"
    )]
    GivenUp,
    /// A peer's key or address is not of the form that this NIC needs.
    #[error("a peer's key or address was refused: {0}")]
    BadKey(String),
    /// The memory cannot be shared with peers in the way that the NIC needs.
    #[error(transparent)]
    Memory(#[from] DeviceError),
    /// The provider or the system refused something.
    #[error("{what}: {detail}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What was said.
        detail: String,
    },
}

/// What a NIC's atomic operations are atomic with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// The NIC does no arithmetic: programs only copy.
    None,
    /// With the target's own processors and devices, and so with every other origin.
    Coherent,
}

/// Which bytes of registered memory the signals of peers may touch. (Their transfers may touch all bytes.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// The bell at its beginning, which they ring.
    Bell,
    /// Words, which they add to or poison: `count` of them. The first is at the beginning, and each is `step` bytes
    /// after the one before. A step is a multiple of 8.
    Words {
        /// How many words there are.
        count: usize,
        /// Bytes from one word to the next.
        step: usize,
    },
}

/// Local memory to be registered.
pub struct Memory<'a> {
    /// Its first byte.
    pub base: Ptr,
    /// Its length in bytes.
    pub bytes: usize,
    /// The bytes that signals may name. If this end carries out the signals of peers, it drops all others.
    pub signalled: Signalled,
    /// Whether transfers of peers may *update* elements there: by any action but a copy. Then each signalled word
    /// stands for one peer's queue.
    pub updated: bool,
    /// Makes a handle of the memory, for a NIC that needs one (to register device memory, or to pass it on to peers of
    /// the node).
    pub share: &'a dyn Fn() -> Result<Handle, DeviceError>,
    /// Keeps the memory alive; the NIC holds it as long as the registration.
    pub keep: Keep,
}

/// What a peer needs to reach registered memory.
#[derive(Debug, Default)]
pub struct Key {
    /// Opaque bytes.
    pub bytes: Vec<u8>,
    /// A handle that belongs to the bytes. Only peers of the node get it.
    pub handle: Option<Handle>,
}

/// Memory that peers can reach, until this is dropped.
pub struct Registration {
    /// What the peers need.
    pub key: Key,
    /// Ends the registration when it is dropped.
    pub guard: Keep,
}

/// A peer's memory. Only the NIC knows what the value holds.
#[derive(Clone)]
pub struct RemoteMemory(pub Keep);

/// A place in a peer's memory.
#[derive(Clone)]
pub struct RemotePtr {
    /// The memory that the place is in.
    pub memory: RemoteMemory,
    /// Bytes from its beginning.
    pub offset: usize,
}

/// What the control plane says of a peer.
pub enum News {
    /// The peer has answered the question of this number ([`Connection::asks`]), so it was there after the question was
    /// asked. What failed towards it before that did not fail because of its departure.
    There(u64),
    /// The peer leaves in good order, and all that it has sent has arrived. It keeps its endpoint open until the ranks
    /// that reach it have heard this, or for a few moments.
    Leaves,
    /// The peer has left in good order. The NIC calls the function when this end has completed what the peer sent
    /// before it left. It may call it on another thread, and under no lock of the NIC.
    Left(Box<dyn FnOnce() + Send>),
    /// The peer is lost. Core has recorded that as the reason of all failures from here on.
    Lost,
}

/// What a NIC gets when the ranks have met.
pub struct Connection {
    /// The addresses of all ranks, in order; empty for a rank that has no NIC.
    pub addresses: Vec<Vec<u8>>,
    /// The bell that streams of this rank ring after they have added to a doorbell. There is one for all queues, so
    /// that an agent can sleep on it.
    pub bell: Ptr,
    /// Keeps the bell alive.
    pub keep: Keep,
    /// Whether all streams of this rank call the [`helper`](Nic::helper) after they have rung.
    pub helped: bool,
    /// Whether nobody rings the bell. Then an engine must poll the doorbells while programs are armed.
    pub polled: bool,
    /// The NIC calls it once, with the reason, when the endpoint can no longer be used. Peers may then wait for
    /// transfers that will not come, and the NIC cannot tell them. The NIC holds none of its locks then, because the
    /// function may call the NIC.
    pub failed: Box<dyn Fn(String) + Send + Sync>,
    /// The NIC calls it with a peer and a number when something towards that peer has failed. It asks the control plane
    /// whether the peer is there. The answer is [`News`] of the peer: [`News::There`] with that number, or the peer's
    /// end. The call does not wait. The NIC holds none of its locks then, because the function may call the NIC.
    pub asks: Box<dyn Fn(usize, u64) + Send + Sync>,
    /// How many ranks of this node share the NIC's resources, this one included.
    pub ranks_on_node: usize,
}

/// The words of a queue.
pub struct QueueConfig {
    /// The word that the stream adds to. Its bell is [`Connection::bell`].
    pub doorbell: Ptr,
    /// The word that the NIC adds to when a firing is through at this end. Its first count may be more than 0: then the
    /// stream is told of each firing that much earlier.
    pub sent: Ptr,
    /// The bell of the rank that may sleep on the sent word.
    pub sent_bell: Ptr,
    /// The word of this rank, in registered memory, that the peer's queue in the other direction signals; null if there
    /// is no such queue, and then nothing is updated.
    pub back: Ptr,
    /// Keeps the words and the bell alive. The NIC drops it when the queue is closed and none of its firings is under
    /// way any more, or when the endpoint is closed. The NIC holds none of its locks then, because the drop may run
    /// code that calls the NIC, or that drops it.
    pub keep: Keep,
}

/// A register of a NIC: 8 bytes that are written by single stores, and never read. Each store counts.
#[derive(Clone)]
pub struct Register {
    /// Its address; 8-byte aligned.
    pub at: Ptr,
    /// Keeps the register at that address.
    pub keep: Keep,
}

/// The remote side of a transfer.
#[derive(Clone)]
pub struct RemoteSide {
    /// Where element 0 of the shape lies.
    pub base: RemotePtr,
    /// Bytes to add to `base` in firings with an odd number.
    pub flip: usize,
    /// Which elements. An index table is in memory of *this* end.
    pub shape: Shape,
}

/// The direction of a copy. All other actions change the remote elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From here to there.
    Put,
    /// From there to here.
    Get,
}

/// Moves `count` elements of `size` bytes.
#[derive(Clone)]
pub struct Transfer {
    /// What the transfer does. The other addresses of the action are of this end.
    pub action: Action,
    /// The direction of a copy.
    pub direction: Direction,
    /// Bytes of an element.
    pub size: u32,
    /// How many elements are moved.
    pub count: usize,
    /// This end's elements. Firings with an odd number add its `flip`.
    pub local: Side,
    /// The peer's elements.
    pub remote: RemoteSide,
    /// The part of a ring, from 0, with which the transfer may be made. 0 if rings come whole.
    pub stage: u32,
}

/// The word that a program adds `QUANTUM` to when its transfers are delivered. All programs of a queue name the same
/// word, and nothing else adds to it.
#[derive(Clone)]
pub struct Signal {
    /// The word that is added to.
    pub word: RemotePtr,
    /// How many quanta the word counts before the queue's first firing.
    pub first: u64,
    /// The bell of the rank that waits on the word. The two ends of the NIC decide how they ring it.
    pub bell: RemotePtr,
}

/// The number that a stream adds to a doorbell as part `index` (from 0) of a ring in `parts`. All parts add up to
/// [`QUANTUM`]. Until the last, the sum is the number of parts that have come.
///
/// # Panics
///
/// If there is no such part, or if there are so many parts that nothing is left for the last.
pub const fn part(index: u64, parts: u64) -> u64 {
    assert!(index < parts && parts <= QUANTUM, "a ring has such a part");
    if index + 1 < parts {
        1
    } else {
        QUANTUM - (parts - 1)
    }
}

/// What one firing does.
pub struct Program {
    /// The transfers, which are made first.
    pub transfers: Vec<Transfer>,
    /// The signal, which follows them.
    pub signal: Signal,
    /// Keeps alive what the program needs: the memory that it reads and writes at this end, and its index tables.
    pub keep: Vec<Keep>,
}

/// A program as the NIC that prepared it knows it.
#[derive(Clone)]
pub struct Prepared(pub Keep);

/// One rank's endpoint.
///
/// # Safety
///
/// Implementations do what this module says, and touch only memory that they are given: a key leads to the memory that
/// it was made for. A program touches the memory that its sides name, between its ring and its adds.
pub unsafe trait Nic: Send + Sync + 'static {
    /// The kind of NIC. Ranks that reach each other have the same.
    fn name(&self) -> &'static str;

    /// Which other accesses its atomic operations are atomic with.
    fn atomics(&self) -> Atomics;

    /// Says, before any other call, whether the NIC will have to [poll](Connection::polled) doorbells.
    ///
    /// # Errors
    ///
    /// [`NicError::Exhausted`], [`NicError::System`].
    fn begin(&self, polled: bool) -> Result<(), NicError> {
        let _ = polled;
        Ok(())
    }

    /// Where peers find this endpoint.
    fn address(&self) -> Vec<u8>;

    /// Makes memory reachable for peers.
    ///
    /// # Errors
    ///
    /// [`NicError::Exhausted`], [`NicError::Memory`], [`NicError::System`].
    ///
    /// # Safety
    ///
    /// The memory is live as long as `keep`. The words of their epochs entitle peers to what they do to the memory.
    unsafe fn register(&self, memory: Memory<'_>) -> Result<Registration, NicError>;

    /// Tells the NIC of the other ranks. Called once, before the methods below.
    ///
    /// # Errors
    ///
    /// [`NicError::BadKey`], [`NicError::System`].
    ///
    /// # Safety
    ///
    /// The bell is live as long as `keep`.
    unsafe fn connect(&self, connection: Connection) -> Result<(), NicError>;

    /// Makes a peer's registered memory, of `bytes` bytes, known to this end.
    ///
    /// # Errors
    ///
    /// [`NicError::BadKey`], [`NicError::Memory`].
    fn import(&self, peer: usize, key: Key, bytes: usize) -> Result<RemoteMemory, NicError>;

    /// Makes a queue of programs towards a peer, which may be this rank itself.
    ///
    /// # Errors
    ///
    /// [`NicError::Exhausted`].
    ///
    /// # Safety
    ///
    /// The words and the bell are live as long as `keep`, in memory of the host; the doorbell is 0. Only streams of
    /// this rank add to the doorbell, and only the queue adds to the sent word.
    unsafe fn queue(&self, peer: usize, config: QueueConfig)
    -> Result<Arc<dyn NicQueue>, NicError>;

    /// Passes on news of a peer from the control plane. Returns at once, because other news waits behind.
    ///
    /// When a peer has left, its own adds to this rank's words may still be on their way. If this end makes those adds,
    /// it first makes them all, and then calls the function of [`News::Left`]. That takes a few moments, or longer if
    /// the machine gives its agent no processor (2 s at most). This rank's firings towards that peer are over then.
    fn hear(&self, peer: usize, news: News) {
        let _ = peer;
        if let News::Left(then) = news {
            then();
        }
    }

    /// How many programs of this rank can have a slot at a time, armed and not yet through; at least 1. Known when the
    /// ranks have met.
    fn budget(&self) -> usize;

    /// How many programs of this rank are armed and not yet through, with a slot or in line.
    fn armed(&self) -> usize;

    /// Waits until at most `most` programs are [armed](Self::armed), but no longer than `limit`. Returns how many are.
    fn await_armed(&self, most: usize, limit: Duration) -> usize;

    /// Keeps a registration, or something else that peers may still use, until the endpoint is closed: nothing accesses
    /// it after that. A NIC that does not know when that is keeps it for good.
    fn keep(&self, what: Keep) {
        std::mem::forget(what);
    }

    /// The work that threads of streams can do for the NIC.
    fn helper(&self) -> Option<Arc<dyn Helper>> {
        None
    }

    /// Whether hardware adds to words of this rank by itself. If it reads and writes the word in two steps, a
    /// processor's change in between is lost. The only such change is a poison. So a rank that poisons such words
    /// repeats it as long as somebody may wait.
    fn adds(&self) -> bool {
        false
    }

    /// Waits until everything that was rung for is through, and has arrived, but no longer than `limit`. Returns
    /// whether that is so. A rank that leaves its job without this could lose signals that peers wait for.
    fn quiesce(&self, limit: Duration) -> bool;
}

/// The armed programs of one half of a window towards one peer. When the queue is dropped, the NIC fires the programs
/// that were rung for, and gives up the rest.
///
/// # Safety
///
/// See [`Nic`].
pub unsafe trait NicQueue: Send + Sync + 'static {
    /// Prepares a program for this queue, so that it can be armed. A NIC that must know local memory registers it here.
    ///
    /// # Errors
    ///
    /// [`NicError::Unsupported`], [`NicError::Exhausted`].
    ///
    /// # Safety
    ///
    /// At every firing:
    /// - The sides lie within registered memory of the queue's peer, and within local memory that `keep` keeps alive.
    /// - Elements are aligned, and initialised if they are read. The word and the bell are live.
    /// - Nothing accesses what the firing writes, and nothing writes what it reads, unless both accesses are atomic or
    ///   are ordered. They are ordered if they come before the ring (the part of it with which the transfer may be
    ///   made), or after the adds to the remote and sent words.
    /// - `scalar` fits `size`.
    unsafe fn prepare(&self, program: Program) -> Result<Prepared, NicError>;

    /// Appends `programs` in order, repeated `times` times. Does not wait: programs for which no trigger slot is free
    /// stand in line.
    ///
    /// # Errors
    ///
    /// [`NicError::GivenUp`]. Then nothing has been armed.
    fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<(), NicError>;

    /// Whether the queue makes the transfers of a stage as soon as their part of the ring has come, so that rings in
    /// parts are worth their cost. Not if streams store to the [register](Self::register): each store is a whole ring.
    fn takes_parts(&self) -> bool {
        false
    }

    /// How many programs were armed so far, and how many of them are through or were given up.
    fn counts(&self) -> (u64, u64);

    /// The register by which a stream fires the next program: it stores 1 there after each add to the doorbell. No
    /// other queue has the same register. `None` if the stream only adds to the doorbell. The address is one for
    /// threads of this process.
    fn register(&self) -> Option<Register> {
        None
    }

    /// Says, before anything is armed, that the stream will store to the [register](Self::register). Without this call,
    /// the queue must look at the doorbell to find out that it was rung. If the doorbell was rung but no store comes,
    /// that is a transfer that fails.
    fn struck_by_streams(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_a_ring_and_count_themselves() {
        for parts in [1, 2, 3, 255, QUANTUM] {
            let mut count = 0;
            for index in 0..parts {
                assert_eq!(count, index, "of {parts}");
                count += part(index, parts);
            }
            assert_eq!(count, QUANTUM, "{parts}");
        }
    }
}
