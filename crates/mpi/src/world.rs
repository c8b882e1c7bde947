//! A world of a communicator's ranks.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use mpi::topology::Communicator;
use serde::{Deserialize, Serialize};
use tidegate_boot::{BootError, Config, TcpControl, own_address};
use tidegate_core::{World, WorldOptions};
use tidegate_hal::control::Control;
use tidegate_hal::device::Device;

use crate::address;
use crate::calls::{Own, usable};
use crate::error::MpiError;

/// Makes worlds of communicators: `World::from_mpi(&communicator)`.
pub trait FromMpi: Sized {
    /// A world whose ranks are those of the communicator, in the same order, each on the device that `World::init` would take. Collective over the
    /// communicator.
    ///
    /// The communicator, and MPI, may go before the world does. What the environment says of limits and nodes (`TIDEGATE_RENDEZVOUS_TIMEOUT`,
    /// `TIDEGATE_HEARTBEAT_MS`, `TIDEGATE_SILENCE_MS`, `TIDEGATE_NODE`, `TIDEGATE_ADDRESS`, `TIDEGATE_ROUTE`, `TIDEGATE_DEVICE`) counts as in every
    /// job; `RANK` and its like are not looked at.
    ///
    /// Rank 0 of a world leaves it last, and waits for the others. So worlds that are alive at once are let go of in the same order by all their ranks.
    ///
    /// # Errors
    ///
    /// [`MpiError`]: on all ranks, where one of them cannot take part.
    fn from_mpi<C: Communicator + ?Sized>(communicator: &C) -> Result<Self, MpiError> {
        Self::from_mpi_with(communicator, WorldOptions::new())
    }

    /// As [`FromMpi::from_mpi`], with a NIC perhaps. Collective over the communicator.
    ///
    /// # Errors
    ///
    /// As [`FromMpi::from_mpi`].
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
        let control = Arc::new(join(communicator)?);
        // SAFETY: the control plane of `tidegate-boot` carries what it is given.
        Ok(unsafe { World::join_with(control, options) }?)
    }
}

/// What rank 0 says.
#[derive(Serialize, Deserialize)]
struct Invitation {
    /// As [`Config::address`].
    addresses: String,
    secret: [u8; 32],
}

/// Joins the ranks of a communicator; collective.
fn join<C: Communicator + ?Sized>(communicator: &C) -> Result<TcpControl, MpiError> {
    usable()?;
    // What this rank can say of itself, before anybody depends on it.
    let limits = config(0, 1);
    let limit = limits
        .as_ref()
        .map_or(Duration::from_secs(60), |config| config.timeout);
    // SAFETY: a communicator of rsmpi is alive as long as it is there, and MPI is as well.
    let own = unsafe { Own::duplicate(communicator.as_raw(), limit) }?;
    let joined = meet(&own, limits.map(|_| ()));
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

/// Agrees on where to meet; collective. What to join with, and for each rank the lowest that is on its node, says MPI.
fn meet(own: &Own, mine: Result<(), BootError>) -> Result<(Config, Vec<u64>), MpiError> {
    let address = own_address();
    let mine = mine.and(address.map(|_| ()));
    let network = address::network(own.rank);
    let all = own.all_gather([u64::from(mine.is_ok()), network, own.lowest_on_node()?])?;
    if let Some(rank) = all.iter().position(|each| each[0] == 0) {
        let reason = mine.as_ref().err().map(ToString::to_string);
        let reason = own.broadcast(rank, reason.unwrap_or_default().into_bytes())?;
        return Err(match mine {
            Err(error) => failed(error.into()),
            Ok(()) => MpiError::Peer {
                rank,
                reason: String::from_utf8_lossy(&reason).into_owned(),
            },
        });
    }
    let by_mpi = all.iter().map(|each| each[2]).collect();
    let near = all.iter().all(|each| each[1] == network);
    let mut listener = None;
    let said: Result<Invitation, String> = match own.rank {
        0 => listen(near)
            .map(|(socket, invitation)| {
                listener = Some(socket);
                invitation
            })
            .map_err(|error| format!("it cannot listen for the others: {error}")),
        _ => Err(String::new()),
    };
    let said = postcard::to_stdvec(&said).expect("it is plain data");
    let said = own.broadcast(0, said)?;
    let refused = |reason| MpiError::Peer { rank: 0, reason };
    let said: Result<Invitation, String> =
        postcard::from_bytes(&said).map_err(|error| refused(error.to_string()))?;
    let invitation = said.map_err(refused)?;
    let mut config = config(own.rank, own.size).map_err(|error| failed(error.into()))?;
    config.address = invitation.addresses;
    config.secret = invitation.secret.to_vec();
    config.listener = listener;
    Ok((config, by_mpi))
}

fn failed(error: tidegate_core::Error) -> MpiError {
    MpiError::World(error)
}

/// Limits and nodes as the environment says; the rest as MPI does, or as rank 0 will.
fn config(rank: usize, size: usize) -> Result<Config, BootError> {
    let said = |text: &str| Some(OsString::from(text));
    let config = Config::from_lookup(|name| match name {
        "RANK" => said(&rank.to_string()),
        "WORLD_SIZE" => said(&size.to_string()),
        // In place of what is not known yet.
        "MASTER_ADDR" => said("localhost"),
        "MASTER_PORT" => said("1"),
        "TIDEGATE_SECRET" => said("0000000000000000"),
        "TIDEGATE_JOB_ID" => None,
        other => std::env::var_os(other),
    })?;
    Ok(config.expect("rank and size were said"))
}

/// A socket that the others of this network can reach, and what they need for it. `near`: all of them reach the loopback address.
fn listen(near: bool) -> Result<(TcpListener, Invitation), Box<dyn std::error::Error>> {
    let chosen = match own_address()? {
        None if near => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        other => other,
    };
    let listener = match chosen {
        Some(address) => TcpListener::bind((address, 0))?,
        // Both kinds of addresses; where there is no IPv6, the one.
        None => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?,
    };
    let port = listener.local_addr()?.port();
    let addresses = match chosen {
        Some(address) => vec![address],
        None => address::own(),
    };
    if addresses.is_empty() {
        return Err(
            "this host has no address but the loopback one; TIDEGATE_ADDRESS may name one".into(),
        );
    }
    let at = |address: IpAddr| std::net::SocketAddr::new(address, port).to_string();
    let addresses: Vec<_> = addresses.into_iter().map(at).collect();
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| error.to_string())?;
    let invitation = Invitation {
        addresses: addresses.join(","),
        secret,
    };
    Ok((listener, invitation))
}

/// MPI knows by its own means who is on one node. The control plane's word counts: descriptors can be passed where it says so. But if
/// the two disagree, somebody may wonder why ranks of one machine go by the NIC.
fn compare(control: &TcpControl, by_mpi: &[u64]) {
    let me = control.rank();
    let ours = |rank: usize| control.node(rank) == control.node(me);
    let theirs = |rank: usize| by_mpi[rank] == by_mpi[me];
    let apart: Vec<_> = (0..by_mpi.len())
        .filter(|rank| ours(*rank) != theirs(*rank))
        .collect();
    if let Some(first) = apart.first() {
        let (here, says) = match ours(*first) {
            true => ("one node", "two"),
            false => ("two nodes", "one"),
        };
        tracing::warn!(
            rank = me,
            others = ?apart,
            "these ranks and this one are of {here} for tidegate, and of {says} for MPI; tidegate keeps to its own \
             view (kernel, namespaces and user, or TIDEGATE_NODE): ranks that cannot pass descriptors to each other go by the NIC"
        );
    }
}
