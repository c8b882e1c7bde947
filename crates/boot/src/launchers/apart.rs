//! Ranks that another launcher started, and that meet without its store.
//!
//! # Model
//!
//! This is so if `TIDEGATE_SECRET` is set: then the ranks have a secret, and nothing of it should go through the
//! launcher. Rank and size are the launcher's. The rest can be left out if it is known:
//!
//! | variable | if it is not set |
//! |---|---|
//! | `MASTER_ADDR` | the loopback address, if all ranks are on one host; with Slurm, the first host of the step |
//! | `MASTER_PORT` | derived from the job's identity (Slurm's job and step, or PMIx's name), from 20000 to 31999 |
//!
//! If `MASTER_ADDR` is set, rank 0 listens only there. If it is the first host of a step, rank 0 listens at
//! `TIDEGATE_ADDRESS`; if that is not set, at all addresses of its host, because a host's own name often means its
//! loopback there.
//!
//! # Failure
//!
//! If a value is neither set nor known, the error names the variable. It is also an error if another program has taken
//! the port; `MASTER_PORT` chooses another one.

use super::environment::Started;
use super::meeting::listen_everywhere;
use crate::config::Config;
use crate::error::BootError;
use crate::loopback::loopback;
use crate::variables::{Text, address_of, number, own_address};
use hmac_sha256::Hash;
use std::net::TcpListener;

/// These ports are below those that systems assign by themselves.
const PORTS: std::ops::Range<u16> = 20000..32000;

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
    let here = || one_host.then(|| loopback().to_string());
    let host = said.clone().or_else(here).or(started.host.clone());
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
    let hash: [u8; 32] = Hash::hash(job.as_bytes());
    PORTS.start + u16::from_le_bytes([hash[0], hash[1]]) % (PORTS.end - PORTS.start)
}

#[cfg(test)]
mod tests {
    use super::super::environment::{self, Started};
    use super::*;

    const SRUN: &[(&str, &str)] = &[
        ("SLURM_JOB_ID", "12"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_NODELIST", "node[07-08]"),
    ];

    fn of(variables: &[(&str, &str)]) -> Result<Config, BootError> {
        let text = |name: &'static str| {
            let found = variables.iter().rev().find(|(own, _)| *own == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        };
        let started: Started = environment::started(&text)?.expect("a launcher");
        config(&started, b"0123456789abcdef".to_vec(), &text)
    }

    #[test]
    fn a_meeting_point_is_derived_if_its_parts_are_known() {
        let config = of(SRUN).unwrap();
        assert_eq!((config.rank, config.size), (1, 4));
        let (host, port) = config.address.split_once(':').unwrap();
        assert_eq!(host, "node07");
        let port: u16 = port.parse().unwrap();
        assert!(PORTS.contains(&port));
        // Another step most likely has another port; in this example it does.
        let other = of(&[SRUN, &[("SLURM_STEP_ID", "1")]].concat()).unwrap();
        assert_ne!(other.address, config.address);
        let one = of(&[SRUN, &[("SLURM_STEP_NUM_NODES", "1")]].concat()).unwrap();
        assert_eq!(one.address, format!("127.0.0.1:{port}"));
        let said = of(&[SRUN, &[("MASTER_ADDR", "::1"), ("MASTER_PORT", "99")]].concat()).unwrap();
        assert_eq!(said.address, "[::1]:99");
        assert!(said.listener.is_none() && config.listener.is_none());
    }

    #[test]
    fn rank_0_of_several_hosts_listens_whatever_its_host_is_called() {
        let zero = [
            SRUN,
            &[("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "unlike another")],
        ]
        .concat();
        let config = of(&zero).unwrap();
        let at = config.listener.unwrap().local_addr().unwrap();
        assert!(at.ip().is_unspecified());
        assert!(config.address.ends_with(&format!(":{}", at.port())));
    }

    #[test]
    fn unknown_values_are_reported_by_name() {
        let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        let address = ("MASTER_ADDR", "vm");
        for (variables, named) in [
            (&pmi[..], "MASTER_ADDR"),
            (&[pmi[0], pmi[1], address], "MASTER_PORT"),
            (&[("PMIX_NAMESPACE", "a"), ("PMIX_RANK", "0")], "WORLD_SIZE"),
        ] {
            let error = of(variables).unwrap_err();
            assert!(
                matches!(error, BootError::MissingVariable { name, .. } if name == named),
                "{error}"
            );
        }
        let error = of(&[SRUN, &[("MASTER_PORT", "x")]].concat()).unwrap_err();
        assert!(matches!(error, BootError::BadVariable { .. }), "{error}");
    }
}
