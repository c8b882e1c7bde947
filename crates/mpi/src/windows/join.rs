//! Ranks meet over MPI.

use std::ffi::c_int;
use std::sync::Arc;

use mpi::ffi;
use mpi::topology::Communicator;
use tidegate_boot::Invitation;
use tidegate_core::{Error, World};
use tidegate_hal::control::Control;
use tidegate_host::Host;

use super::bus::Rma;
use super::call::check;
use super::control::Keyed;
use super::error::JoinError;
use super::inner::Inner;
use super::machine::Machine;
use super::messages::Messages;
use super::names::Names;
use super::options::{Form, Options};
use super::ranks::Ranks;
use super::tell::tell;
use super::{choose, finalize, reductions};
use crate::calls::{Own, call};
use crate::error::MpiError;
use crate::world::control as control_of;

/// A world whose ranks are those of a communicator, in the same order, and reach each other by windows of MPI.
/// Collective over the communicator. It is duplicated, so it may be freed afterwards.
///
/// # Errors
///
/// [`JoinError`].
///
/// # Examples
///
/// ```no_run
/// use tidegate::host::prelude::*;
/// use tidegate::mpi::mpi;
/// use tidegate::mpi::windows::{self, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> { let (universe, _) =
/// mpi::initialize_with_threading(mpi::Threading::Multiple).expect("nobody has initialised MPI before"); let world:
/// World = windows::world(&universe.world(), &Options::new())?;
/// # Ok(()) }
/// ```
pub fn world<C: Communicator>(comm: &C, options: &Options) -> Result<World<Host>, JoinError> {
    let (control, device) = join(comm, Arc::new(control_of(comm)?), options)?;
    // SAFETY: the control plane of `tidegate-boot` carries what it is given, and `join` has made it carry keys.
    let world = unsafe { World::from_control(control, device) };
    world.map_err(|error| MpiError::World(error).into())
}

/// Like [`world`], for a control plane of your own. Makes a device whose streams reach the ranks of a communicator by
/// MPI, and the control plane with which `World::from_control` makes a world. Collective over the communicator. The
/// given control plane must have the same ranks as the communicator. The communicator is duplicated, so it may be freed
/// afterwards.
///
/// # Errors
///
/// [`JoinError`].
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use tidegate::host::prelude::*;
/// use tidegate::mpi::windows::{self, Options};
/// use tidegate::mpi::{mpi, world::control};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Multiple).expect("nobody has initialised MPI
/// before"); let comm = universe.world(); let (control, device) = windows::join(&comm, Arc::new(control(&comm)?),
/// &Options::new())?; // SAFETY: the control plane carries what it is given, and no other world is made of it. let
/// world: World = unsafe { World::from_control(control, device) }?;
/// # Ok(()) }
/// ```
pub fn join(
    comm: &impl Communicator,
    control: Arc<dyn Control>,
    options: &Options,
) -> Result<(Arc<dyn Control>, Host), JoinError> {
    let comm = comm.as_raw();
    // SAFETY: the communicator is live as long as it is borrowed.
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
    // SAFETY: the communicator is live as long as it is borrowed, and MPI runs.
    let own = unsafe { Own::duplicate(comm, limit) };
    let (own, mine) = parted(own.map(Own::keep).map_err(JoinError::from));
    tell(&*control, "a communicator of their own", mine)?;
    let own = own.expect("it was told so");
    // SAFETY: the duplicate is live, and only this library uses it. Its ranks were compared with the control plane's.
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

/// A result, in two parts: the value, and the report to the other ranks.
fn parted<T>(outcome: Result<T, JoinError>) -> (Option<T>, Result<(), JoinError>) {
    match outcome {
        Ok(made) => (Some(made), Ok(())),
        Err(error) => (None, Err(error)),
    }
}

/// The steps that a rank makes alone, and that can fail.
fn start(ranks: Ranks, control: &Arc<dyn Control>) -> Result<(Arc<Inner>, Arc<Rma>), JoinError> {
    let names = Names::reserve(!ranks.all_near())?;
    // SAFETY: the duplicate lives until the bus is closed, which cancels the receive.
    let messages = unsafe { Messages::open(ranks.all) }?;
    let machine = Machine::new(ranks, names, messages);
    let inner = Arc::new(Inner::new(machine, control));
    finalize::prepare()?;
    let bus = Rma::start(inner.clone(), control.clone())?;
    Ok((inner, Arc::new(bus)))
}

/// Checks whether this rank can take part.
///
/// # Safety
///
/// The communicator is live, if MPI runs.
unsafe fn fits(comm: ffi::MPI_Comm, control: &dyn Control) -> Result<(), JoinError> {
    running()?;
    let (mut rank, mut size): (c_int, c_int) = (0, 0);
    // SAFETY: the caller's promise; MPI runs.
    unsafe {
        call!(MPI_Comm_rank(comm, &raw mut rank))?;
        call!(MPI_Comm_size(comm, &raw mut size))?;
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

/// Checks that MPI runs, and allows calls by all threads.
fn running() -> Result<(), JoinError> {
    if !mpi::is_initialized() || mpi::is_finalized() {
        return Err(JoinError::NotRunning);
    }
    let mut provided: c_int = 0;
    // SAFETY: MPI runs, and both are constants of the binding.
    unsafe {
        call!(MPI_Query_thread(&raw mut provided))?;
        if provided < ffi::RSMPI_THREAD_MULTIPLE {
            return Err(JoinError::Threads { provided });
        }
    }
    Ok(())
}
