//! Ranks that somebody else's launcher has started: `mpirun`, `mpiexec`, `srun`.
//!
//! # Model
//!
//! A launcher says in the environment who a process is, and has a key-value store by which its processes can find each
//! other. No MPI is needed for that, neither to build nor to run: the store is spoken to here.
//!
//! | started by | recognised by | store |
//! |---|---|---|
//! | Open MPI's `mpirun` | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | PMIx |
//! | MPICH's `mpiexec` and its kin | `PMI_FD`, `PMI_RANK`, `PMI_SIZE`; or `PMI_PORT`, `PMI_ID` | PMI-1, or PMI-2 |
//! | `srun --mpi=pmi2` | `PMI_FD`, `PMI_RANK`, `PMI_SIZE` | PMI-1, or PMI-2 |
//! | PRRTE, `srun --mpi=pmix` | `PMIX_NAMESPACE`, `PMIX_RANK` | PMIx |
//! | `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | none |
//!
//! The first that fits counts ([`environment`]); `RANK` and `WORLD_SIZE` go before all of them, and `TIDEGATE_LAUNCHER` chooses.
//!
//! *With a store* ([`meeting`]): rank 0 listens, makes a secret, and puts both into the store ([`record`]). All ranks
//! meet in the store's fence; then the others get what rank 0 has put. From there on a job is as any other. The secret
//! is as secret as the launcher keeps its store; it stands on no command line, in no environment, and in no log.
//!
//! *Without one*, or where `TIDEGATE_SECRET` is set: the ranks prove that they belong together by that secret, and meet
//! at `MASTER_ADDR` and `MASTER_PORT` ([`apart`] says what stands in for these).
//!
//! Where rank 0 listens: at `TIDEGATE_ADDRESS`, if it is set. Else, if the launcher says that all ranks are on one
//! host, at the loopback address. Else at all addresses of its host; it names those that others might reach
//! ([`addresses`]), and these try them by turns; the handshake tells who is the right one.
//!
//! *Once a process.* The store is asked by the first call; its answer is kept. A later call joins again with the same
//! address and secret, as it would with `RANK`: while the first world is there, its port is taken.
//!
//! *MPI in the same process.* A launcher counts a process that has used the store and ends without saying so as failed:
//! so it is told as soon as the ranks have what they need. MPI has to say the same, and for some stores only one can.
//! So it depends on how far MPI is ([`tidegate_ffi::resident::mpi`]):
//!
//! - it is running: PMIx counts its users, and is left at once; `PMI_FD` is MPI's, and MPI will say it.
//! - it is linked, and may run later: the store is left when the control plane ends, by MPI if that runs by then.
//!   [`TcpControl`](crate::TcpControl) must have ended before the process does.
//! - it is over: PMIx can be used again; `PMI_FD` cannot, since MPI has closed it, and that is an error. (Open MPI 4's
//!   server now and then loses a process that comes back so soon: on a loaded machine one job in fifty fails with an
//!   error. To join before MPI is finalised is safe.)
//!
//! MPI that starts only when the control plane has ended cannot use the store any more: start MPI first.
//!
//! # Failure
//!
//! Each step has the deadline of `TIDEGATE_RENDEZVOUS_TIMEOUT`. A launcher that closes its store, says what cannot be
//! understood, or nothing at all, is a [`BootError`] that names the launcher, the step, and what came. A rank that was
//! started by a launcher never goes on alone because of an error: `TIDEGATE_LAUNCHER=none` does that.

mod addresses;
mod apart;
mod environment;
mod invitation;
mod meeting;
mod pmi1;
mod pmi2;
mod pmix;
pub(crate) mod read;
mod record;
pub(crate) mod session;
mod slurm;
mod store;
mod talk;

pub use invitation::Invitation;
use tidegate_hal::lock;

use crate::config::Config;
use crate::error::BootError;
use crate::variables::{secret, text};
use environment::{Started, Way};
use meeting::Met;
use std::ffi::OsString;
use std::sync::Mutex;
use std::time::Instant;

/// What the launcher's store has said, or why it has not; it is asked once.
static MET: Mutex<Option<Result<Met, String>>> = Mutex::new(None);

/// What the launcher of this process says; `None` if there is none.
pub(crate) fn config(
    lookup: impl Fn(&'static str) -> Option<OsString>,
) -> Result<Option<Config>, BootError> {
    let text = |name| text(&lookup, name);
    let Some(started) = environment::started(&text)? else {
        return Ok(None);
    };
    // Only to be checked and to have the timeout, before anything is said to anybody.
    let mut settings = Config::new(0, 1, "", "");
    settings.read_settings(&text)?;
    if started.size == Some(1) {
        return Ok(Some(settings));
    }
    let mut config = match (secret(&text)?, &started.way) {
        (Some(secret), _) => apart::config(&started, secret, &text)?,
        (None, Way::Nothing) => {
            return Err(BootError::NoStore {
                launcher: started.by,
                reason: "it offers none here (of Slurm, `srun --mpi=pmi2` and `--mpi=pmix` do)"
                    .into(),
            });
        }
        (None, _) => once(&started, &settings)?,
    };
    config.read_settings(&text)?;
    Ok(Some(config))
}

/// Asks the store, if nobody has yet.
fn once(started: &Started, settings: &Config) -> Result<Config, BootError> {
    let began = Instant::now();
    let mut met = lock(&MET);
    match &*met {
        Some(Ok(met)) => return Ok(met.config()),
        Some(Err(reason)) => {
            return Err(BootError::Store {
                launcher: started.by,
                doing: "using it again",
                reason: format!("it failed before: {reason}"),
            });
        }
        None => {}
    }
    let found = match &started.way {
        Way::Pmi(server, version) => pmi1::found(server, *version, started, settings, began),
        Way::Pmix => pmix::found(started, settings, began),
        Way::Nothing => unreachable!("whoever calls this has a store"),
    };
    match found {
        Ok((found, listener, session)) => {
            let mut config = found.config();
            config.listener = listener;
            config.session = session;
            config.began = Some(began);
            *met = Some(Ok(found));
            Ok(config)
        }
        Err(error) => {
            *met = Some(Err(error.to_string()));
            Err(error)
        }
    }
}

/// Takes a value from a store for what rank 0 has put there; for tests.
pub(crate) fn believe(piece: &str) {
    let mut line = String::new();
    if record::add_piece(&mut line, piece).is_ok()
        && let Ok(record) = record::Record::parse(&line)
    {
        assert!(!record.addresses.is_empty());
        assert!(record.reachable(&record.loopback).len() == record.addresses.len());
    }
}

/// Reads an environment in which every variable has this value; for tests.
pub(crate) fn read_environment(value: &str) {
    let text = |name: &'static str| Ok((name != environment::LAUNCHER).then(|| value.to_owned()));
    if let Ok(Some(started)) = environment::started(&text) {
        assert!(started.rank < started.size || started.size.is_none());
    }
    let _ = slurm::first_host(value);
}
