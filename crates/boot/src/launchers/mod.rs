//! Ranks that another launcher started: `mpirun`, `mpiexec`, `srun`.
//!
//! # Model
//!
//! A launcher tells each process its rank in the environment, and has a key-value store by which the processes can find
//! each other. This needs no MPI, neither to build nor to run, since this crate speaks the store's protocol.
//!
//! | started by | recognised by | store |
//! |---|---|---|
//! | Open MPI's `mpirun` | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | PMIx |
//! | MPICH's `mpiexec` and its relatives | `PMI_FD`, `PMI_RANK`, `PMI_SIZE`; or `PMI_PORT`, `PMI_ID` | PMI-1, or PMI-2 |
//! | `srun --mpi=pmi2` | `PMI_FD`, `PMI_RANK`, `PMI_SIZE` | PMI-1, or PMI-2 |
//! | PRRTE, `srun --mpi=pmix` | `PMIX_NAMESPACE`, `PMIX_RANK` | PMIx |
//! | `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | none |
//!
//! The first that fits counts ([`environment`]). `RANK` and `WORLD_SIZE` take precedence over all of them, and
//! `TIDEGATE_LAUNCHER` chooses one.
//!
//! *With a store* ([`meeting`]): rank 0 listens, makes a secret, and puts its address and the secret into the store
//! ([`record`]). All ranks meet in the store's fence, and then the others get the record. From there on the job is like
//! any other. The secret is as safe as the launcher's store. It is in no command line, no environment and no log.
//!
//! *Without a store*, or if `TIDEGATE_SECRET` is set: the ranks prove by that secret that they belong together, and
//! meet at `MASTER_ADDR` and `MASTER_PORT` ([`apart`] has the defaults).
//!
//! Rank 0 listens at `TIDEGATE_ADDRESS` if it is set. Otherwise, if the launcher says that all ranks are on one host,
//! it listens at the loopback address. Otherwise it listens at all addresses of its host, and tells the others those
//! that they might reach ([`addresses`]). They try these in turn, and the handshake finds the right one.
//!
//! *Once per process.* The first call asks the store, and its answer is kept. A later call joins again with the same
//! address and secret, as with `RANK`. While the first world exists, its port is taken.
//!
//! *MPI in the same process.* If a process has used the store and ends without leaving it, the launcher counts it as
//! failed. So the store is left as soon as the ranks have what they need. MPI has to leave it, too, and some stores can
//! be left only once. So it depends on the state of MPI ([`tidegate_ffi::resident::mpi`]):
//!
//! - MPI is running. PMIx counts its users, and is left at once. `PMI_FD` belongs to MPI, which will leave it.
//! - MPI is linked, and may run later. The store is left when the control plane ends, by MPI if it runs by then.
//!   [`TcpControl`](crate::TcpControl) must have ended before the process does.
//! - MPI is over. PMIx can be used again. `PMI_FD` cannot, since MPI has closed it, and that is an error. (Open MPI 4's
//!   server sometimes loses a process that comes back so soon: on a loaded machine one job in fifty fails with an
//!   error. It is safe to join before MPI is finalised.)
//!
//! If MPI starts only after the control plane has ended, it cannot use the store any more. So start MPI first.
//!
//! # Failure
//!
//! Each step has the deadline of `TIDEGATE_RENDEZVOUS_TIMEOUT`. If a launcher closes its store, answers nonsense, or
//! does not answer, the [`BootError`] names the launcher, the step, and the answer. A rank that a launcher started
//! never goes on alone because of an error; `TIDEGATE_LAUNCHER=none` makes it alone.

mod addresses;
mod apart;
pub(crate) mod environment;
mod invitation;
mod meeting;
mod pmi1;
mod pmi2;
mod pmix;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod session;
pub(crate) mod slurm;
mod store;
mod talk;

pub use invitation::Invitation;
pub use meeting::listen_everywhere;
use tidegate_hal::lock;

use crate::config::Config;
use crate::error::BootError;
use crate::variables::{secret, text};
use environment::{Started, StoreKind};
use meeting::Met;
use std::ffi::OsString;
use std::sync::Mutex;
use std::time::Instant;

/// The result of asking the launcher's store, which is done once.
static MET: Mutex<Option<Result<Met, String>>> = Mutex::new(None);

/// The configuration from this process's launcher; `None` if there is none.
pub(crate) fn config(
    lookup: impl Fn(&'static str) -> Option<OsString>,
) -> Result<Option<Config>, BootError> {
    let text = |name| text(&lookup, name);
    let Some(started) = environment::started(&text)? else {
        return Ok(None);
    };
    // This checks the settings and gives the timeout, before anything is sent.
    let mut settings = Config::new(0, 1, "", "");
    settings.read_settings(&text)?;
    if started.size == Some(1) {
        return Ok(Some(settings));
    }
    let mut config = match (secret(&text)?, &started.way) {
        (Some(secret), _) => apart::config(&started, secret, &text)?,
        (None, StoreKind::Nothing) => {
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

/// Asks the store, if that has not been done yet.
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
        StoreKind::Pmi(server, version) => pmi1::found(server, *version, started, settings, began),
        StoreKind::Pmix => pmix::found(started, settings, began),
        StoreKind::Nothing => unreachable!("whoever calls this has a store"),
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
