//! The configuration with which a rank joins its job, and the environment variables that give it.
//!
//! # Model
//!
//! A job can be started by any program that sets `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` and
//! `TIDEGATE_SECRET`. If neither `RANK` nor `WORLD_SIZE` is set, this crate looks for other launchers (`mpirun`,
//! `srun`: see `launchers/mod.rs`). If there is none, the process is a job of one rank.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `RANK` | this rank, from 0 | |
//! | `WORLD_SIZE` | the number of ranks | |
//! | `MASTER_ADDR`, `MASTER_PORT` | the only address at which rank 0 listens | |
//! | `TIDEGATE_SECRET` | a secret of at least 16 bytes, which proves membership | |
//! | `TIDEGATE_JOB_ID` | distinguishes jobs that use the same secret | empty |
//! | `TIDEGATE_NODE` | the name of this node, instead of the one that the host gives. Ranks with the same name must be able to pass descriptors to each other; other ranks do not try | |
//! | `TIDEGATE_RENDEZVOUS_TIMEOUT` | seconds to wait for the other ranks | 60 |
//! | `TIDEGATE_HEARTBEAT_MS` | interval of heartbeats | 1000 |
//! | `TIDEGATE_SILENCE_MS` | the silence after which a rank is given up | 10000 |
//! | `TIDEGATE_ADDRESS` | the address of this node that NICs use, as the source and to listen at ([`own_address`](crate::own_address)) | left to the NIC: libfabric takes the loopback's |
//! | `TIDEGATE_LISTEN_FD` | set by the launcher: a listening socket that rank 0 inherits, as its descriptor and its inode (`3:4711`). A process without that socket ignores the variable | |
//! | `TIDEGATE_ENDS_FD` | set by the launcher: a file of memory in which this rank tells because of which other rank it fails, as its descriptor and its inode. A process without that file ignores the variable | |
//! | `TIDEGATE_LAUNCHER` | the other launcher that started this rank: `pmix`, `pmi`, `pmi2`, `slurm`. `none`: this process is a job of its own. Ignored if `RANK` is set | found out |
//! | `TIDEGATE_LIBPMIX` | the PMIx library that goes with the launcher | `libpmix.so.2` |
//!
//! If another launcher started a rank, `TIDEGATE_SECRET` means that the ranks meet without the launcher's store. Then
//! `MASTER_ADDR` and `MASTER_PORT` can be left out if they can be derived. Rank 0 listens at `TIDEGATE_ADDRESS`, too.
//! All other `TIDEGATE_` variables keep their meaning.
//!
//! # Failure
//!
//! Every value is checked before anything is sent. The error names the variable.

use crate::ends::Ends;
use crate::error::BootError;
use crate::inherit::why_taken;
use crate::launchers::session::HeldStore;
use crate::variables::{NODE, Text, address_of, bad, place, secret, text, within};
use crate::wire::NodeId;
use hmac_sha256::Hash;
use std::ffi::OsString;
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tidegate_hal::variables::{
    HEARTBEAT_MS, JOB_ID, MASTER_PORT, RENDEZVOUS_TIMEOUT, SILENCE_MS, Variable,
};

/// The configuration with which a rank joins its job. [`Config::new`] and [`Config::from_env`] make it. A limit that is
/// too long to be reached, such as [`Duration::MAX`], means no limit.
#[non_exhaustive]
pub struct Config {
    /// This rank.
    pub rank: usize,
    /// The number of ranks of the job.
    pub size: usize,
    /// `host:port` at which rank 0 listens.
    pub address: String,
    /// Other addresses at which rank 0 may listen. They are tried in turn with `address`, and the handshake finds out
    /// which one is rank 0.
    pub also: Vec<String>,
    /// The secret of the job.
    pub secret: Vec<u8>,
    /// The name of the job. It is part of what a rank proves.
    pub job_id: String,
    /// The name of the node. `None`: it is taken from the host.
    pub node: Option<String>,
    /// How long to wait for the other ranks.
    pub timeout: Duration,
    /// How often heartbeats are sent.
    pub heartbeat: Duration,
    /// How long a rank may be silent before it is given up. A suspended process is silent.
    pub silence: Duration,
    /// For rank 0: the socket to listen on, instead of a new one at `address`.
    pub listener: Option<TcpListener>,
    /// Where the launcher reads which rank's failure was first.
    pub(crate) ends: Option<Ends>,
    /// A launcher's store that this process has still to leave.
    pub(crate) session: Option<HeldStore>,
    /// Whether the environment gave this configuration. Then the process may join again.
    pub(crate) from_environment: bool,
    /// How many times the process has joined before.
    pub(crate) generation: u64,
    /// How many children a rank has in the tree of the ranks. `None`: that follows from the number of ranks.
    pub(crate) arity: Option<usize>,
    /// When joining began, if it has. The timeout counts from there.
    pub(crate) began: Option<Instant>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("address", &self.address)
            .field("also", &self.also)
            .field("job_id", &self.job_id)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// A configuration with default limits.
    pub fn new(
        rank: usize,
        size: usize,
        address: impl Into<String>,
        secret: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            rank,
            size,
            address: address.into(),
            also: Vec::new(),
            secret: secret.into(),
            job_id: String::new(),
            node: None,
            timeout: Duration::from_secs(60),
            heartbeat: Duration::from_millis(1000),
            silence: Duration::from_millis(10_000),
            listener: None,
            ends: None,
            session: None,
            from_environment: false,
            generation: 0,
            arity: None,
            began: None,
        }
    }

    /// A new socket at this address, for rank 0.
    pub(crate) fn listen(&self) -> Result<TcpListener, BootError> {
        let address = &self.address;
        TcpListener::bind(&**address).map_err(|error| {
            BootError::io(
                format!("listening at {address} for the other ranks"),
                why_taken(error),
            )
        })
    }

    /// The configuration that `RANK`, `WORLD_SIZE` and the related variables give, from any source. It ignores
    /// `TIDEGATE_LISTEN_FD` and `TIDEGATE_ENDS_FD`, and does not look for other launchers.
    ///
    /// # Errors
    ///
    /// [`BootError::MissingVariable`], [`BootError::BadVariable`] and [`BootError::NoSecret`] name the variable.
    pub fn from_lookup(
        lookup: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Option<Self>, BootError> {
        let text = |name| text(&lookup, name);
        let Some((rank, size)) = place(&text, "RANK", "WORLD_SIZE")? else {
            return Ok(None);
        };
        let mut config = Config::new(rank, size, "", "");
        let required = |name: &'static str| {
            text(name)?.ok_or_else(|| BootError::MissingVariable {
                name,
                because: format!("WORLD_SIZE={size} says that there are other ranks to meet"),
            })
        };
        if size > 1 {
            let host = required("MASTER_ADDR")?;
            let port = within(&MASTER_PORT, &required(MASTER_PORT.name)?)?;
            config.address = address_of(&host, port as u16);
            config.secret = secret(&text)?.ok_or(BootError::NoSecret)?;
        }
        config.read_settings(&text)?;
        Ok(Some(config))
    }

    /// Reads the settings that do not depend on the launcher.
    pub(crate) fn read_settings(&mut self, text: &Text<'_>) -> Result<(), BootError> {
        let config = self;
        config.job_id = text(JOB_ID.name)?.unwrap_or_default();
        config.node = text(NODE)?;
        let duration =
            |variable: &Variable, unit: Duration, default: Duration| match text(variable.name)? {
                Some(value) => Ok(unit * within(variable, &value)? as u32),
                None => Ok(default),
            };
        let (second, millisecond) = (Duration::from_secs(1), Duration::from_millis(1));
        config.timeout = duration(&RENDEZVOUS_TIMEOUT, second, config.timeout)?;
        config.heartbeat = duration(&HEARTBEAT_MS, millisecond, config.heartbeat)?;
        config.silence = duration(&SILENCE_MS, millisecond, config.silence)?;
        if config.silence < 3 * config.heartbeat {
            let value = config.silence.as_millis().to_string();
            let expected = "it must be at least three intervals of TIDEGATE_HEARTBEAT_MS";
            return Err(bad(SILENCE_MS.name, &value, expected));
        }
        Ok(())
    }
}

/// The reason for giving up a rank that was silent for too long.
pub(crate) fn unheard(silence: Duration) -> String {
    format!(
        "nothing was heard of it for {silence:.1?}; TIDEGATE_SILENCE_MS says how long that may be"
    )
}

/// The id of a node. Ranks with the same id can pass descriptors to each other.
///
/// They can if they run under one kernel (boot id), see the same abstract sockets (network namespace), and may
/// trust each other's credentials (user, user namespace). Process and IPC namespaces are included because the
/// handles of some devices are only good within one.
pub(crate) fn node_id(config: &Config) -> NodeId {
    let mut hash = Hash::new();
    if let Some(name) = &config.node {
        hash.update(b"name\0");
        hash.update(name);
        return hash.finalize();
    }
    hash.update(b"host\0");
    // Without a boot id, hosts cannot be distinguished. Then a rank is alone on its node, which is always safe.
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => hash.update(boot.trim()),
        Err(_) => hash.update(config.rank.to_le_bytes()),
    }
    for namespace in ["net", "user", "pid", "ipc"] {
        if let Ok(target) = std::fs::read_link(format!("/proc/self/ns/{namespace}")) {
            hash.update(target.as_os_str().as_encoded_bytes());
        }
        hash.update(b"\0");
    }
    hash.update(rustix::process::geteuid().as_raw().to_le_bytes());
    hash.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Option<Config>, BootError> {
        Config::from_lookup(|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    const GOOD: [(&str, &str); 5] = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "::1"),
        ("MASTER_PORT", "2000"),
        ("TIDEGATE_SECRET", "0123456789abcdef"),
    ];

    fn with(name: &'static str, value: Option<&'static str>) -> Result<Option<Config>, BootError> {
        let mut variables = GOOD.to_vec();
        variables.retain(|(n, _)| *n != name);
        variables.extend(value.map(|value| (name, value)));
        parse(&variables)
    }

    #[test]
    fn reads_a_good_environment() {
        let config = parse(&GOOD).unwrap().unwrap();
        assert_eq!((config.rank, config.size), (1, 2));
        assert_eq!(config.address, "[::1]:2000");
        assert!(
            !format!("{config:?}").contains("0123"),
            "a secret is not printed"
        );
        let config = with("TIDEGATE_RENDEZVOUS_TIMEOUT", Some("3"))
            .unwrap()
            .unwrap();
        assert_eq!(config.timeout, Duration::from_secs(3));
    }

    #[test]
    fn nothing_set_is_a_job_of_one() {
        assert!(parse(&[]).unwrap().is_none());
        assert!(parse(&[("MASTER_ADDR", "x")]).unwrap().is_none());
        let alone = parse(&[("RANK", "0"), ("WORLD_SIZE", "1")])
            .unwrap()
            .unwrap();
        assert_eq!(alone.size, 1);
    }

    #[test]
    fn errors_name_the_variable() {
        for (name, value) in [
            ("RANK", "-1"),
            ("RANK", "2"),
            ("RANK", "one"),
            ("RANK", ""),
            ("WORLD_SIZE", "0"),
            ("WORLD_SIZE", "99999999999999999999"),
            ("MASTER_PORT", "70000"),
            ("MASTER_PORT", "0"),
            ("TIDEGATE_SECRET", "short"),
            ("TIDEGATE_RENDEZVOUS_TIMEOUT", "soon"),
            ("TIDEGATE_HEARTBEAT_MS", "0"),
            ("TIDEGATE_SILENCE_MS", "1000"),
        ] {
            let error = with(name, Some(value)).unwrap_err();
            let BootError::BadVariable { name: named, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(*named, name, "{error}");
            assert!(
                !error.to_string().contains("short"),
                "a secret is not printed"
            );
        }
        for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
            let error = with(name, None).unwrap_err();
            assert!(
                matches!(error, BootError::MissingVariable { name: n, .. } if n == name),
                "{error}"
            );
        }
        let error = with("TIDEGATE_SECRET", None).unwrap_err();
        assert!(error.to_string().contains("TIDEGATE_SECRET="), "{error}");
    }

    #[test]
    fn nodes_are_told_apart_by_name_and_are_stable() {
        let mut config = Config::new(0, 2, "", "");
        let host = node_id(&config);
        assert_eq!(host, node_id(&Config::new(1, 2, "", "")));
        config.node = Some("a".into());
        let a = node_id(&config);
        config.node = Some("b".into());
        assert_ne!(a, node_id(&config));
        assert_ne!(a, host);
    }
}
