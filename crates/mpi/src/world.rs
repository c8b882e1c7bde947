//! A world of a communicator's ranks.
//!
//! # Model
//!
//! [`FromMpi`] makes a world from a communicator, with the same ranks in the same order. MPI is only used to *meet*.
//! Rank 0 listens, and sends its address and a secret over a duplicate of the communicator. Then the duplicate is
//! freed, and from there on the ordinary control plane of `tidegate-boot` is used, with its heartbeats, reports of
//! deaths, and descriptors. So the world may outlive the communicator, and MPI itself. There may be a world for each
//! communicator. And MPI must only allow calls by the thread that makes the world.
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
//! [`MpiError`] names the call that MPI refused, or the rank that could not take part. All ranks come to the same
//! verdict, if MPI lets them. If a rank dies later, the control plane notices it, as in every job; most launchers of
//! MPI then end the job.

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
    /// The communicator, and MPI, may end before the world does. The environment's settings for limits and nodes apply
    /// as in every job (`TIDEGATE_RENDEZVOUS_TIMEOUT`, `TIDEGATE_HEARTBEAT_MS`, `TIDEGATE_SILENCE_MS`, `TIDEGATE_NODE`,
    /// `TIDEGATE_ADDRESS`, `TIDEGATE_ROUTE`, `TIDEGATE_DEVICE`). `RANK` and the related variables are ignored.
    ///
    /// Rank 0's control plane serves the others in the background until all of them have left. The end of its process
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

    /// Like [`FromMpi::from_mpi`], with options. Collective over the communicator.
    ///
    /// # Errors
    ///
    /// The errors of [`FromMpi::from_mpi`].
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

/// The control plane of a communicator's ranks, in the same order. Worlds of other kinds are made with it, such as
/// those over [windows of MPI](crate::windows). Collective over the communicator, which may be freed before the control
/// plane.
///
/// # Errors
///
/// The errors of [`FromMpi::from_mpi`].
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
    // This comes before any other rank depends on this one.
    let mine = Invitation::patience().and_then(|patience| Ok((patience, network()?)));
    let limit = mine
        .as_ref()
        .map_or(Duration::from_secs(60), |(patience, _)| *patience);
    // SAFETY: a communicator of rsmpi is live as long as the value exists, and so is MPI.
    let own = unsafe { Own::duplicate(communicator.as_raw(), limit) }?;
    let joined = meet(&own, mine.map(|(_, network)| network));
    // After a failed call of MPI, the state of the communicator is unknown.
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

/// Agrees on an address. Collective. `mine` is the [network] of this rank, or why it cannot take part. Returns the
/// configuration to join with, and for each rank the lowest rank on its node, according to MPI.
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
    // Only rank 0 offers one, if it can.
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

/// The number of a network. Ranks with the same number reach each other by the loopback address.
fn network() -> Result<u64, BootError> {
    let digits = Invitation::loopback()?;
    Ok(u64::from_str_radix(&digits[..16], 16).expect("they are hexadecimal digits"))
}

/// Compares MPI's list of nodes with the control plane's. The control plane's counts, since it says where descriptors
/// can be passed. But if the two differ, a user may wonder why ranks of one machine use the NIC.
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
