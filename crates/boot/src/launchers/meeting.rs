//! Ranks find each other through a store.
//!
//! # Model
//!
//! Rank 0 listens, and puts a [`Record`] into the store. Then all ranks enter the fence, and the others get the record.
//! There is one fence, however many ranks there are, and only rank 0 puts anything.
//!
//! # Failure
//!
//! The environment and the store must agree on rank and size. If rank 0 gave only a loopback address, a rank on another
//! host fails at once.

use tidegate_hal::tell;

use super::addresses;
use super::environment::Started;
use super::record::{self, MOST_PIECES, Record};
use super::session::HeldStore;
use super::store::{Store, StoreError};
use crate::config::Config;
use crate::error::BootError;
use crate::loopback::loopback;
use crate::secret::{hex, random};
use crate::variables::own_address;
use crate::wire::MAX_RANKS;
use rustix::net::sockopt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Instant;

/// The rank of this process, and where it meets the others.
#[derive(Clone)]
pub(crate) struct Met {
    rank: usize,
    size: usize,
    secret: String,
    /// Of rank 0: where it listens. Of the others: where they look for it, in turn.
    addresses: Vec<SocketAddr>,
}

impl Met {
    pub(crate) fn new(
        rank: usize,
        size: usize,
        secret: String,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        Met {
            rank,
            size,
            secret,
            addresses,
        }
    }

    pub(crate) fn config(&self) -> Config {
        let mut addresses = self.addresses.iter().map(SocketAddr::to_string);
        let first = addresses.next().unwrap_or_default();
        let mut config = Config::new(self.rank, self.size, first, self.secret.as_bytes());
        config.also = addresses.collect();
        config
    }
}

/// The result, with rank 0's listening socket, and with the store if it cannot be left yet.
pub(crate) type Found = (Met, Option<TcpListener>, Option<HeldStore>);

/// Meets the others through `store`.
pub(crate) fn hold(
    mut store: Box<dyn Store>,
    started: &Started,
    began: Instant,
) -> Result<Found, BootError> {
    let fail = |doing| move |error: StoreError| error.of(started.by, doing, began);
    let (rank, size) = store.place();
    check_place(rank, size, started).map_err(fail("asking who this is"))?;
    let mut met = Met {
        rank,
        size,
        secret: String::new(),
        addresses: Vec::new(),
    };
    let mut listener = None;
    if size > 1 && rank == 0 {
        let (socket, record) = offer(started.local == Some(size))?;
        let at = socket
            .local_addr()
            .map_err(|error| BootError::io("asking where this rank listens", error))?;
        tell(
            || tracing::debug!(listening = %at, addresses = ?record.addresses, "told the launcher's store"),
        );
        put(&mut *store, &record).map_err(fail("putting the address of rank 0"))?;
        met.secret = record.secret;
        met.addresses = vec![at];
        listener = Some(socket);
    }
    if size > 1 {
        store.fence().map_err(fail("waiting for all ranks"))?;
    }
    if rank > 0 {
        let record = get(&mut *store).map_err(fail("getting the address of rank 0"))?;
        met.addresses = ways(&record, began)?;
        met.secret = record.secret;
    }
    let session = HeldStore::conclude(store).map_err(fail("leaving it"))?;
    Ok((met, listener, session))
}

/// The addresses at which to look for rank 0.
pub(crate) fn ways(record: &Record, began: Instant) -> Result<Vec<SocketAddr>, BootError> {
    let own = record::loopback_id();
    let own = own.map_err(|error| BootError::io("asking for the name of this host", error))?;
    let ways = record.reachable(&own);
    if ways.is_empty() {
        return Err(BootError::Unreachable {
            address: format!("{:?}", record.addresses),
            waited: began.elapsed(),
            attempts: 0,
            last: "these are loopback addresses of another host or network namespace; TIDEGATE_ADDRESS \
                   tells rank 0 which of its addresses to use"
                .into(),
        });
    }
    Ok(ways)
}

fn check_place(rank: usize, size: usize, started: &Started) -> Result<(), StoreError> {
    if size == 0 || size > MAX_RANKS || rank >= size {
        let why = format!("it says that this is rank {rank} of {size}");
        return Err(StoreError::Garbled(why));
    }
    let other = |said: Option<usize>, found| said.is_some_and(|said| said != found);
    if other(started.rank, rank) || other(started.size, size) {
        let shown = |said: Option<usize>| said.map_or("?".into(), |said| said.to_string());
        return Err(StoreError::Garbled(format!(
            "it says that this is rank {rank} of {size}, and the environment that it is {} of {}",
            shown(started.rank),
            shown(started.size),
        )));
    }
    Ok(())
}

/// Listens, and makes the record for the others. `one_host` says that all ranks are on this host.
pub(crate) fn offer(one_host: bool) -> Result<(TcpListener, Record), BootError> {
    let listening = |error| BootError::io("listening for the other ranks", error);
    let chosen = own_address()?;
    let socket = match (chosen, one_host) {
        (Some(address), _) => TcpListener::bind((address, 0)),
        (None, true) => TcpListener::bind((loopback(), 0)),
        (None, false) => listen_everywhere(0),
    };
    let socket = socket.map_err(listening)?;
    let at = socket.local_addr().map_err(listening)?;
    let mut addresses = vec![at.ip()];
    if at.ip().is_unspecified() {
        addresses = addresses::own();
        // If the system has no IPv6, no rank could connect that way.
        addresses.retain(|address| at.is_ipv6() || address.is_ipv4());
        addresses.push(loopback());
    }
    let io = |what| move |error| BootError::io(what, error);
    let record = Record {
        secret: hex(&random::<32>().map_err(io("making the secret of the job"))?),
        loopback: record::loopback_id().map_err(io("asking for the name of this host"))?,
        addresses: addresses
            .into_iter()
            .map(|address| SocketAddr::new(address, at.port()))
            .collect(),
    };
    Ok((socket, record))
}

/// Listens at all addresses of this host, of both kinds if it has both. For port 0, the system chooses one.
pub fn listen_everywhere(port: u16) -> std::io::Result<TcpListener> {
    if let Ok(both) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        && sockopt::ipv6_v6only(&both) == Ok(false)
    {
        return Ok(both);
    }
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
}

fn put(store: &mut dyn Store, record: &Record) -> Result<(), StoreError> {
    let pieces = record.pieces(store.room()).map_err(StoreError::Refused)?;
    for (number, piece) in pieces.iter().enumerate() {
        store.put(&record::key(number), piece)?;
    }
    Ok(())
}

fn get(store: &mut dyn Store) -> Result<Record, StoreError> {
    let mut line = String::new();
    for number in 0..MOST_PIECES {
        let piece = store.get(&record::key(number))?;
        if !record::add_piece(&mut line, &piece).map_err(StoreError::Garbled)? {
            return Record::parse(&line).map_err(StoreError::Garbled);
        }
    }
    Err(StoreError::Garbled(
        "what rank 0 has put there has no end".into(),
    ))
}
