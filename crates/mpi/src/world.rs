//! A world of a communicator's ranks.
//!
//! # Model
//!
//! [`FromMpi`] makes a world of a communicator: its ranks are those of the communicator, in the same order. MPI is used
//! to *meet*, and no longer: rank 0 listens, and says where and with which secret over a duplicate of the communicator;
//! the duplicate is freed, and from there on the ordinary control plane of `tidegate-boot` carries on, with its
//! heartbeats, deaths and descriptors. So the world outlives the communicator, and MPI itself; there may be as many
//! worlds as there are communicators; and nothing asks for more of MPI than calls by the thread that makes the world.
//!
//! ```no_run
//! use tidegate_core::World;
//! use tidegate_host::Host;
//! use tidegate_mpi::{FromMpi as _, mpi};
//!
//! let universe = mpi::initialize().expect("nobody has initialised MPI before");
//! let world: World<Host> = World::from_mpi(&universe.world())?;
//! println!("rank {} of {}", world.rank(), world.size());
//! # Ok::<(), tidegate_core::Error>(())
//! ```
//!
//! # Failure
//!
//! [`MpiError`] says what MPI refused, or which rank could not take part; all ranks come to the same verdict, if MPI lets
//! them. A rank that dies later is noticed by the control plane, as in every job; and most launchers of MPI then end the job.

use std::sync::Arc;
use std::time::Duration;

use mpi::topology::Communicator;
use tidegate_boot::{BootError, Config, Invitation, TcpControl};
use tidegate_core::{World, WorldOptions};
use tidegate_hal::control::Control;
use tidegate_hal::device::Device;

use crate::calls::{Own, usable};
use crate::error::MpiError;

/// Makes worlds of communicators: `World::from_mpi(&communicator)`.
///
/// # Examples
///
/// ```no_run
/// use tidegate::host::prelude::*; // has the trait, with the feature `mpi`
/// use tidegate::mpi::mpi;
///
/// # fn main() -> Result<()> {
/// let universe = mpi::initialize().expect("nobody has initialised MPI before");
/// let world: World = World::from_mpi(&universe.world())?;
/// println!("rank {} of {}", world.rank(), world.size());
/// # Ok(()) }
/// ```
pub trait FromMpi: Sized {
    /// A world whose ranks are those of the communicator, in the same order, each on the device that `World::join`
    /// would take. Collective over the communicator.
    ///
    /// The communicator, and MPI, may go before the world does. What the environment says of limits and nodes
    /// (`TIDEGATE_RENDEZVOUS_TIMEOUT`, `TIDEGATE_HEARTBEAT_MS`, `TIDEGATE_SILENCE_MS`, `TIDEGATE_NODE`,
    /// `TIDEGATE_ADDRESS`, `TIDEGATE_ROUTE`, `TIDEGATE_DEVICE`) counts as in every job; `RANK` and its like are not
    /// looked at.
    ///
    /// Rank 0 of a world carries its control plane until all others have left, in the background. The end of its process
    /// waits for that; MPI may be finalised before.
    ///
    /// # Errors
    ///
    /// [`MpiError`]: on all ranks, where one of them cannot take part.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use tidegate::host::prelude::*;
    /// # use tidegate::mpi::mpi;
    /// use mpi::topology::{Color, Communicator};
    ///
    /// # fn main() -> Result<()> {
    /// # let universe = mpi::initialize().expect("nobody has initialised MPI before");
    /// let all = universe.world();
    /// let half = all.split_by_color(Color::with_value(all.rank() % 2)).expect("it has a color");
    /// let world: World = World::from_mpi(&half)?;
    /// # Ok(()) }
    /// ```
    fn from_mpi<C: Communicator + ?Sized>(communicator: &C) -> Result<Self, MpiError> {
        Self::from_mpi_with(communicator, WorldOptions::new())
    }

    /// As [`FromMpi::from_mpi`], with a NIC perhaps. Collective over the communicator.
    ///
    /// # Errors
    ///
    /// As [`FromMpi::from_mpi`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use tidegate::host::prelude::*;
    /// # use tidegate::mpi::mpi;
    /// use tidegate::{Route, WorldOptions};
    ///
    /// # fn main() -> Result<()> {
    /// # let universe = mpi::initialize().expect("nobody has initialised MPI before");
    /// let options = WorldOptions::new().route(Route::Mapped);
    /// let world: World = World::from_mpi_with(&universe.world(), options)?;
    /// # Ok(()) }
    /// ```
    fn from_mpi_with<C: Communicator + ?Sized>(
        communicator: &C,
        options: WorldOptions,
    ) -> Result<Self, MpiError>;
}

impl<D: Device> FromMpi for World<D> {
    fn from_mpi_with<C: Communicator + ?Sized>(
        communicator: &C,
        options: WorldOptions,
    ) -> Result<Self, MpiError> {
        let control = Arc::new(control(communicator)?);
        // SAFETY: the control plane of `tidegate-boot` carries what it is given.
        Ok(unsafe { World::join_with(control, options) }?)
    }
}

/// The control plane among the ranks of a communicator, in the same order: what worlds of other kinds are made with, as
/// those over [windows of MPI](crate::windows). Collective over the communicator, which may go before the control plane.
///
/// # Errors
///
/// As [`FromMpi::from_mpi`].
///
/// # Examples
///
/// ```no_run
/// # use tidegate::host::prelude::*;
/// # use tidegate::mpi::mpi;
/// use tidegate::hal::control::Control;
///
/// # fn main() -> Result<()> {
/// # let universe = mpi::initialize().expect("nobody has initialised MPI before");
/// let control = tidegate::mpi::world::control(&universe.world())?;
/// println!("rank {} is on node {}", control.rank(), control.node(control.rank()));
/// control.leave();
/// # Ok(()) }
/// ```
pub fn control<C: Communicator + ?Sized>(communicator: &C) -> Result<TcpControl, MpiError> {
    usable()?;
    // What this rank can say of itself, before anybody depends on it.
    let mine = Invitation::patience().and_then(|patience| Ok((patience, network()?)));
    let limit = mine
        .as_ref()
        .map_or(Duration::from_secs(60), |(patience, _)| *patience);
    // SAFETY: a communicator of rsmpi is alive as long as it is there, and MPI is as well.
    let own = unsafe { Own::duplicate(communicator.as_raw(), limit) }?;
    let joined = meet(&own, mine.map(|(_, network)| network));
    // Of what MPI has failed at nobody knows in what state it is.
    match joined {
        Err(error @ MpiError::Call { .. }) => Err(error),
        Ok((config, by_mpi)) => {
            own.free()?;
            let control = TcpControl::join(config).map_err(|error| failed(error.into()))?;
            compare(&control, &by_mpi);
            Ok(control)
        }
        Err(error) => own.free().and(Err(error)),
    }
}

/// Agrees on where to meet; collective. `mine` is the [network] of this rank, or why it cannot take part. What to join
/// with, and for each rank the lowest that is on its node, says MPI.
fn meet(own: &Own, mine: Result<u64, BootError>) -> Result<(Config, Vec<u64>), MpiError> {
    let network = *mine.as_ref().unwrap_or(&0);
    let all = own.all_gather([u64::from(mine.is_ok()), network, own.lowest_on_node()?])?;
    if let Some(rank) = all.iter().position(|each| each[0] == 0) {
        let reason = mine.as_ref().err().map(ToString::to_string);
        let reason = own.broadcast(rank, reason.unwrap_or_default().into_bytes())?;
        return Err(match mine {
            Err(error) => failed(error.into()),
            Ok(_) => MpiError::Peer {
                rank,
                reason: String::from_utf8_lossy(&reason).into_owned(),
            },
        });
    }
    let by_mpi = all.iter().map(|each| each[2]).collect();
    let near = all.iter().all(|each| each[1] == network);
    // Rank 0's, if it can.
    let offered = (own.rank == 0).then(|| Invitation::offer(near));
    let line = match &offered {
        Some(Ok((invitation, _))) => Ok(invitation.line()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(String::new()),
    };
    let line = postcard::to_stdvec(&line).expect("it is plain data");
    let line = own.broadcast(0, line)?;
    let refused = |reason| MpiError::Peer { rank: 0, reason };
    let line: Result<String, String> =
        postcard::from_bytes(&line).map_err(|error| refused(error.to_string()))?;
    let boot = |error: BootError| failed(error.into());
    let (invitation, listener) = match offered.transpose().map_err(boot)? {
        Some((invitation, socket)) => (invitation, Some(socket)),
        None => {
            let line = line.map_err(refused)?;
            (Invitation::parse(&line).map_err(boot)?, None)
        }
    };
    let mut config = invitation.config(own.rank, own.size).map_err(boot)?;
    config.listener = listener;
    Ok((config, by_mpi))
}

fn failed(error: tidegate_core::Error) -> MpiError {
    MpiError::World(error)
}

/// A number of a network: ranks with the same one reach each other by the loopback address.
fn network() -> Result<u64, BootError> {
    let digits = Invitation::loopback()?;
    Ok(u64::from_str_radix(&digits[..16], 16).expect("they are hexadecimal digits"))
}

/// MPI knows by its own means who is on one node. The control plane's word counts: descriptors can be passed where it
/// says so. But if the two disagree, somebody may wonder why ranks of one machine go by the NIC.
fn compare(control: &TcpControl, by_mpi: &[u64]) {
    let me = control.rank();
    let ours = |rank: usize| control.node(rank) == control.node(me);
    let theirs = |rank: usize| by_mpi[rank] == by_mpi[me];
    let apart: Vec<_> = (0..by_mpi.len())
        .filter(|rank| ours(*rank) != theirs(*rank))
        .collect();
    if let Some(first) = apart.first() {
        let (here, says) = if ours(*first) {
            ("one node", "two")
        } else {
            ("two nodes", "one")
        };
        tracing::warn!(
            rank = me,
            others = ?apart,
            "these ranks and this one are of {here} for tidegate, and of {says} for MPI; tidegate keeps to its own \
             view (kernel, namespaces and user, or TIDEGATE_NODE): ranks that cannot pass descriptors to each other go by the NIC"
        );
    }
}
