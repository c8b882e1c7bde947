//! Ranks that were started by a launcher, and meet without its store.
//!
//! # Model
//!
//! So it is where `TIDEGATE_SECRET` is set: somebody has seen to it that the ranks have a secret, and nothing of it goes through the launcher. Rank and size are the launcher's. The rest can be left out where it is known:
//!
//! | variable | without it |
//! |---|---|
//! | `MASTER_ADDR` | the loopback address, if all ranks are on one host; of Slurm, the first host of the step |
//! | `MASTER_PORT` | made from what tells the job from others (Slurm's job and step, the name that PMIx gives), from 20000 to 31999 |
//!
//! Rank 0 listens at `MASTER_ADDR` only, if that is set. At the first host of a step it listens at `TIDEGATE_ADDRESS` if that is set, or else at all addresses of its host, since a host's name often means its loopback there.
//!
//! # Failure
//!
//! What is neither set nor known is an error by name. A port that another program has taken is one too; `MASTER_PORT` names another.

use super::environment::Started;
use super::meeting::listen_everywhere;
use crate::config::{Config, address_of, number, own_address};
use crate::error::BootError;
use sha2::{Digest, Sha256};
use std::net::TcpListener;

/// Below the ports that systems give away by themselves.
const PORTS: std::ops::Range<u16> = 20000..32000;

type Text<'a> = dyn Fn(&'static str) -> Result<Option<String>, BootError> + 'a;

pub(crate) fn config(
    started: &Started,
    secret: Vec<u8>,
    text: &Text<'_>,
) -> Result<Config, BootError> {
    let missing = |name, because: &str| BootError::MissingVariable {
        name,
        because: format!("{} started this process, {because}", started.by),
    };
    let (Some(rank), Some(size)) = (started.rank, started.size) else {
        return Err(missing(
            "WORLD_SIZE",
            "and does not say without its store how many there are (set RANK too)",
        ));
    };
    let said = text("MASTER_ADDR")?;
    let one_host = started.local == Some(size);
    let loopback = || one_host.then(|| "127.0.0.1".to_owned());
    let host = said.clone().or_else(loopback).or(started.host.clone());
    let host = host.ok_or_else(|| {
        let because = "and TIDEGATE_SECRET says that the ranks meet without its store";
        missing("MASTER_ADDR", because)
    })?;
    let port = match (text("MASTER_PORT")?, &started.job) {
        (Some(port), _) => number("MASTER_PORT", &port, 1, 65535)? as u16,
        (None, Some(job)) => port_of(job),
        (None, None) => {
            let because = "and does not say which of its jobs this is";
            return Err(missing("MASTER_PORT", because));
        }
    };
    let mut config = Config::new(rank, size, address_of(&host, port), secret);
    if rank == 0 && said.is_none() && !one_host {
        let listener = match own_address()? {
            Some(address) => TcpListener::bind((address, port)),
            None => listen_everywhere(port),
        };
        let what = format!("listening at port {port} for the other ranks");
        config.listener = Some(listener.map_err(|error| BootError::io(what, error))?);
    }
    Ok(config)
}

fn port_of(job: &str) -> u16 {
    let hash: [u8; 32] = Sha256::digest(job.as_bytes()).into();
    PORTS.start + u16::from_le_bytes([hash[0], hash[1]]) % (PORTS.end - PORTS.start)
}
