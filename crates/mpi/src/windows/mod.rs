//! MPI as the transport of windows: typed epochs over `MPI_Put` and its like, on every machine that has an MPI.
//!
//! # Model
//!
//! [`world`] makes a world over a *bus*, and [`join`] the bus of a communicator ([`tidegate_hal::far`]): a [`Host`] device whose streams reach peers by
//! windows of MPI, and a control plane that carries the keys to their memory. Everything above is as without MPI:
//! windows, epochs, graphs, barriers.
//!
//! - **Near and far.** Ranks that can have memory in common, by MPI's word (`MPI_COMM_TYPE_SHARED`) and by the control
//!   plane's (a node), are *near*: their memory comes from `MPI_Win_allocate_shared`, `MPI_Win_shared_query` tells where
//!   it is, and streams put, get and signal by loads, stores and processor atomics. All others are *far*.
//! - **Memory** comes from segments, windows of MPI that all ranks make together when one of them has no room; no heap
//!   is sized by hand (`segment.rs`). Each is locked for good (`MPI_Win_lock_all`): all targets are passive.
//! - **Data** for far ranks goes by `MPI_Put`, `MPI_Get`, `MPI_Accumulate` and its like. "`MPI_WIN_FLUSH` completes all
//!   outstanding RMA operations initiated by the calling process to the target rank on the specified window. The
//!   operations are completed both at the origin and at the target" (MPI-3.1, 11.5.4): so a signal that is given after
//!   it comes after the data, with any MPI.
//! - **Signals** to far ranks have two forms. [`Form::Words`]: an `MPI_Accumulate` to a mailbox beside the word, which
//!   the waiter polls and adds to the word itself: all that is done to a word is done by processor atomics of its own
//!   node, all that is done to a mailbox by MPI. [`Form::Messages`]: a message, which whoever turns MPI adds to the
//!   word; small data goes along with it, and needs no put. [`Form::Measured`] takes the one that is faster between
//!   nodes here.
//! - **Memory model.** Windows must be *unified* (`MPI_WIN_UNIFIED`): "public and private copies are identical", and an
//!   update by MPI becomes visible to loads of the owner without further calls (11.4), at the latest with
//!   `MPI_WIN_SYNC` (11.7). That is called when a signal was found and before the word is added to; and before a signal
//!   is given, so that peers' gets see what streams have stored. Between near ranks the signal itself is the barrier.
//! - **Progress** is the host's. Whoever waits turns MPI (tests a receive that is always posted), yields, and naps
//!   after a while, 1 ms at most. While nobody waits, an *agent* thread does: MPIs whose one-sided operations need the
//!   target's help get it within 1 ms. Where all ranks are near, nothing comes by MPI, and nobody turns it.
//! - **Threads.** Streams, agent and program call MPI, so it must have been initialised with `MPI_THREAD_MULTIPLE`.
//!   This library's own calls take turns under one lock; none waits for a peer's *program* under it.
//! - **Atomics** of a window are all made by processors, where all ranks are near; else all by MPI, those of near ranks
//!   and of a rank on its own memory, too: nothing else is atomic with what MPI does. What MPI reduces wrongly is found
//!   when ranks meet, and refused (`reductions.rs`). Where several origins update one element in one epoch, MPI promises
//!   atomicity for one operation and no other beside it (`same_op_no_op`, its default); the known MPIs keep it for all,
//!   since they lock. MPI compares no floats: a compare-and-swap of floats is one of integers as wide. What the least and
//!   greatest of a NaN is, is MPI's affair.
//!
//! # Failure
//!
//! Every return code is looked at. What MPI refuses fails the bus for good, and with it those of all ranks, since the
//! others are told: streams end with the error. What MPI still reads or writes then, nobody knows: memory of regions that
//! are dropped from then on is given up, not used again. A rank that dies is noticed by the control plane, if MPI lets the others
//! live (`mpirun` usually ends the job); waits end, since none waits inside of MPI. Only what is under way to a far rank
//! can (`MPI_Win_flush`, and with Open MPI an accumulate), and the making of memory, which all ranks do together: how long
//! a dead rank, or one whose processor is taken, keeps them, is MPI's affair. Streams that wait for near ranks go on
//! meanwhile. When `MPI_Finalize` is called, all buses close before MPI does: waits then end with an error that
//! says so, and memory stays where it is. (MPICH 4.0 may abort then if a thread is inside of it: worlds with far ranks are
//! to go before `MPI_Finalize` there. Where all ranks are near, no thread is.)
//!
//! An MPI that makes no windows here for `MPI_THREAD_MULTIPLE` says so when the ranks meet: a typed error. Open MPI 4
//! crashes in `MPI_Compare_and_swap` where ranks of one node reach each other as far ones: there, it is refused.

mod agent;
mod bus;
mod call;
mod choose;
mod control;
mod finalize;
mod inner;
mod machine;
mod messages;
mod names;
mod pool;
mod ranks;
mod reductions;
mod segment;

use std::ffi::c_int;
use std::sync::Arc;

use mpi::ffi;
use mpi::topology::Communicator;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_boot::Invitation;
use tidegate_core::{Error, World};
use tidegate_hal::control::{Control, ControlError, Packet};
use tidegate_hal::device::DeviceError;
use tidegate_hal::far::BusError;
use tidegate_host::Host;

use crate::calls::Own;
use crate::error::MpiError;
use crate::world::control as control_of;
use bus::Rma;
use call::check;
use control::Keyed;
use inner::Inner;
use machine::Machine;
use messages::Messages;
use names::Names;
use ranks::Ranks;

/// Segments begin at a page.
const ALIGN: usize = 4096;

/// The form of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// The one that is found to be faster when the ranks meet; the same on all ranks.
    #[default]
    Measured,
    /// `MPI_Accumulate` to a mailbox, which waiters poll.
    Words,
    /// Messages.
    Messages,
}

/// How windows of MPI are to be used. The same on all ranks.
#[derive(Clone, Debug)]
pub struct Options {
    form: Form,
    shared: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            form: Form::default(),
            shared: true,
        }
    }
}

impl Options {
    /// As is best here.
    pub fn new() -> Self {
        Options::default()
    }

    /// Lets each rank reach all others as far ones, by calls of MPI, even where they have memory in common.
    #[must_use]
    pub fn not_shared(mut self) -> Self {
        self.shared = false;
        self
    }

    /// The form of signals.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }
}

/// Why windows of MPI cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// MPI is not running.
    #[error("MPI is not running: MPI_Init_thread has not been called, or MPI_Finalize has")]
    NotRunning,
    /// MPI was initialised for fewer threads.
    #[error(
        "streams call MPI from threads of their own: ask MPI_Init_thread for MPI_THREAD_MULTIPLE (level {provided} was provided)"
    )]
    Threads {
        /// The level that MPI has provided.
        provided: i32,
    },
    /// The control plane is that of another job.
    #[error("the communicator has rank {} of {}, the control plane rank {} of {}", comm.0, comm.1, control.0, control.1)]
    Mismatch {
        /// Rank and size by the communicator.
        comm: (usize, usize),
        /// Rank and size by the control plane.
        control: (usize, usize),
    },
    /// A rank cannot take part.
    #[error("rank {rank} cannot take part: {reason}")]
    Peer {
        /// Which rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// MPI refused something.
    #[error(transparent)]
    Mpi(#[from] BusError),
    /// The control plane has failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The device has.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks of the communicator have not met, or the world could not be made.
    #[error(transparent)]
    Meet(#[from] MpiError),
}

impl From<JoinError> for Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Meet(error) => error.into(),
            other => Error::Bootstrap(Box::new(other)),
        }
    }
}

/// A world whose ranks are those of a communicator, in the same order, and reach each other by windows of MPI.
/// Collective over the communicator, which is duplicated; it may be freed.
///
/// # Errors
///
/// [`JoinError`].
pub fn world<C: Communicator>(comm: &C, options: &Options) -> Result<World<Host>, JoinError> {
    let (control, device) = join(comm, Arc::new(control_of(comm)?), options)?;
    // SAFETY: the control plane of `tidegate-boot` carries what it is given, and keys besides, as `join` has made it.
    let world = unsafe { World::from_control(control, device) };
    world.map_err(|error| MpiError::World(error).into())
}

/// What [`world`] does for a control plane of one's own: makes a device whose streams reach the ranks of a communicator by
/// MPI, and the control plane to make a world with it: `World::from_control`. Collective over the communicator, whose
/// ranks the control plane must have numbered alike. The communicator is duplicated; it may be freed.
///
/// # Errors
///
/// [`JoinError`].
pub fn join(
    comm: &impl Communicator,
    control: Arc<dyn Control>,
    options: &Options,
) -> Result<(Arc<dyn Control>, Host), JoinError> {
    let comm = comm.as_raw();
    // SAFETY: the communicator is alive as long as it is borrowed.
    let mine = unsafe { fits(comm, &*control) };
    let mine = mine.and_then(|()| {
        let limit = Invitation::patience();
        Ok(limit.map_err(|error| MpiError::World(Error::Bootstrap(Box::new(error))))?)
    });
    let limit = mine.as_ref().ok().copied();
    let mine = mine.map(|_| (options.shared, options.form));
    let all = tell(&*control, "windows of MPI", mine)?;
    if let Some(rank) = all
        .iter()
        .position(|other| *other != (options.shared, options.form))
    {
        let reason = "its options are others".into();
        return Err(JoinError::Peer { rank, reason });
    }
    let limit = limit.expect("it was told so");
    // SAFETY: the communicator is alive as long as it is borrowed; MPI runs.
    let own = unsafe { Own::duplicate(comm, limit) };
    let (own, mine) = parted(own.map(Own::keep).map_err(JoinError::from));
    tell(&*control, "a communicator of their own", mine)?;
    let own = own.expect("it was told so");
    // SAFETY: the duplicate is alive, and this library's alone; its ranks were compared with the control plane's.
    let ranks = unsafe { Ranks::meet(own, &*control, options.shared) };
    let started = ranks.map_err(JoinError::from);
    let (started, mine) = parted(started.and_then(|ranks| start(ranks, &control)));
    tell(&*control, "streams over MPI", mine)?;
    let (inner, bus) = started.expect("it was told so");
    finalize::watch(&inner);
    let form = match options.form {
        Form::Measured => choose::choose(&bus)?,
        form => form,
    };
    bus.set(form);
    bus.leave_out(reductions::wrong(&bus)?);
    inner.meet();
    Ok((Arc::new(Keyed(control, inner)), Host::over(bus)))
}

/// What came of something, and what to tell of it.
fn parted<T>(outcome: Result<T, JoinError>) -> (Option<T>, Result<(), JoinError>) {
    match outcome {
        Ok(made) => (Some(made), Ok(())),
        Err(error) => (None, Err(error)),
    }
}

/// What a rank does for itself, and can fail at.
fn start(ranks: Ranks, control: &Arc<dyn Control>) -> Result<(Arc<Inner>, Arc<Rma>), JoinError> {
    let names = Names::reserve(!ranks.all_near())?;
    // SAFETY: the duplicate stays until the bus is closed, which takes the receive back.
    let messages = unsafe { Messages::open(ranks.all) }?;
    let machine = Machine::new(ranks, names, messages);
    let inner = Arc::new(Inner::new(machine, control));
    finalize::prepare()?;
    let bus = Rma::start(inner.clone(), control.clone())?;
    Ok((inner, Arc::new(bus)))
}

/// Whether this rank can take part.
///
/// # Safety
///
/// The communicator is alive, if MPI runs.
unsafe fn fits(comm: ffi::MPI_Comm, control: &dyn Control) -> Result<(), JoinError> {
    running()?;
    let (mut rank, mut size): (c_int, c_int) = (0, 0);
    // SAFETY: the caller's promise; MPI runs.
    unsafe {
        check("MPI_Comm_rank", ffi::MPI_Comm_rank(comm, &raw mut rank))?;
        check("MPI_Comm_size", ffi::MPI_Comm_size(comm, &raw mut size))?;
    }
    let by_comm = (rank as usize, size as usize);
    let by_control = (control.rank(), control.size());
    if by_comm == by_control {
        return Ok(());
    }
    Err(JoinError::Mismatch {
        comm: by_comm,
        control: by_control,
    })
}

/// Tells all ranks something, or why this rank has nothing to tell, and hears what they tell. Collective: so nobody waits
/// for a rank that has failed.
fn tell<T: Serialize + DeserializeOwned>(
    control: &dyn Control,
    what: &str,
    mine: Result<T, JoinError>,
) -> Result<Vec<T>, JoinError> {
    let said = mine.as_ref().map_err(ToString::to_string);
    let packet = Packet {
        bytes: postcard::to_stdvec(&said).expect("plain data can be encoded"),
        handles: Vec::new(),
    };
    let packets = control.exchange(what, packet);
    mine?;
    let mut all = Vec::new();
    for (rank, packet) in packets?.into_iter().enumerate() {
        let said: Result<Result<T, String>, _> = postcard::from_bytes(&packet.bytes);
        let said = said.unwrap_or_else(|error| Err(error.to_string()));
        all.push(said.map_err(|reason| JoinError::Peer { rank, reason })?);
    }
    Ok(all)
}

/// Checks that MPI runs, and for which threads.
fn running() -> Result<(), JoinError> {
    if !mpi::is_initialized() || mpi::is_finalized() {
        return Err(JoinError::NotRunning);
    }
    let mut provided: c_int = 0;
    // SAFETY: MPI runs; both are constants of the binding's.
    unsafe {
        check("MPI_Query_thread", ffi::MPI_Query_thread(&raw mut provided))?;
        if provided < ffi::RSMPI_THREAD_MULTIPLE {
            return Err(JoinError::Threads { provided });
        }
    }
    Ok(())
}
