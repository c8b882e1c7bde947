//! Who has started this process, by its environment.
//!
//! # Model
//!
//! A pure function of the variables. Launchers are started by launchers (`mpirun` in a job of Slurm, `mpiexec` whose daemons `srun` has started), and variables of the outer one are still there: so the order is that of
//! who can only be the inner one.
//!
//! In a batch script of Slurm, and in a shell that `salloc` gave, there are variables of the job, but this process is no task of a step: it is alone.
//!
//! # Failure
//!
//! Variables that contradict each other, or mean nothing, are errors by name.

use crate::config::{bad, number};
use crate::error::BootError;
use crate::wire::MAX_RANKS;

/// Chooses the launcher, or none.
pub(crate) const LAUNCHER: &str = "TIDEGATE_LAUNCHER";

/// Where a PMI server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// An inherited descriptor.
    Fd(i32),
    /// `host:port`, and by what name it knows this process.
    Port { address: String, id: String },
}

/// How the processes of a job can find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a PMI server; `Some(2)`: by version 2 of its protocol.
    Pmi(Server, Option<u32>),
    /// By the PMIx server that the environment names.
    Pmix,
    /// The launcher has no store.
    Nothing,
}

/// What the environment says of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    /// For messages.
    pub(crate) by: &'static str,
    pub(crate) rank: Option<usize>,
    pub(crate) size: Option<usize>,
    /// How many of the ranks are on this host.
    pub(crate) local: Option<usize>,
    /// The host of rank 0, as far as the launcher says where that is.
    pub(crate) host: Option<String>,
    /// What tells this job from others on the same hosts.
    pub(crate) job: Option<String>,
    pub(crate) way: Way,
}

type Text<'a> = dyn Fn(&'static str) -> Result<Option<String>, BootError> + 'a;

/// Who has started this process; `None`: nobody of whom this crate knows.
pub(crate) fn started(text: &Text<'_>) -> Result<Option<Started>, BootError> {
    let found = match text(LAUNCHER)?.as_deref() {
        Some("none") => return Ok(None),
        None => None
            .or(open_mpi(text)?)
            .or(pmi(text, None)?)
            .or(pmix(text)?)
            .or(slurm(text)?),
        Some("pmix") => open_mpi(text)?.or(pmix(text)?),
        Some("pmi") => pmi(text, None)?,
        Some("pmi2") => pmi(text, Some(2))?,
        Some("slurm") => slurm(text)?,
        Some(other) => {
            let expected = "it must be pmix, pmi, pmi2, slurm or none";
            return Err(bad(LAUNCHER, other, expected));
        }
    };
    if let (None, Some(asked)) = (&found, text(LAUNCHER)?) {
        let expected = "no variable of that launcher is set";
        return Err(bad(LAUNCHER, &asked, expected));
    }
    Ok(found)
}

/// Rank and size, if both are there.
fn place(
    text: &Text<'_>,
    rank: &'static str,
    size: &'static str,
) -> Result<Option<(usize, usize)>, BootError> {
    let (rank_text, size_text) = match (text(rank)?, text(size)?) {
        (None, None) => return Ok(None),
        (Some(rank), Some(size)) => (rank, size),
        (found, _) => {
            let (name, set) = match found {
                Some(_) => (size, rank),
                None => (rank, size),
            };
            let because = format!("{set} is");
            return Err(BootError::MissingVariable { name, because });
        }
    };
    let size = number(size, &size_text, 1, MAX_RANKS as u64)? as usize;
    let rank = number(rank, &rank_text, 0, size as u64 - 1)? as usize;
    Ok(Some((rank, size)))
}

fn count(text: &Text<'_>, name: &'static str) -> Result<Option<usize>, BootError> {
    let found = text(name)?.map(|value| number(name, &value, 1, MAX_RANKS as u64));
    Ok(found.transpose()?.map(|count| count as usize))
}

fn open_mpi(text: &Text<'_>) -> Result<Option<Started>, BootError> {
    let place = place(text, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?;
    let Some((rank, size)) = place else {
        return Ok(None);
    };
    let job = text("PMIX_NAMESPACE")?;
    Ok(Some(Started {
        by: "Open MPI",
        rank: Some(rank),
        size: Some(size),
        local: count(text, "OMPI_COMM_WORLD_LOCAL_SIZE")?,
        host: None,
        way: match job {
            Some(_) => Way::Pmix,
            None => Way::Nothing,
        },
        job,
    }))
}

fn pmi(text: &Text<'_>, version: Option<u32>) -> Result<Option<Started>, BootError> {
    let place = place(text, "PMI_RANK", "PMI_SIZE")?;
    let server = match (text("PMI_FD")?, text("PMI_PORT")?) {
        (Some(fd), _) => {
            let number = number("PMI_FD", &fd, 3, i32::MAX as u64)?;
            Some(Server::Fd(number as i32))
        }
        (None, Some(address)) => {
            let id = text("PMI_ID")?.ok_or_else(|| BootError::MissingVariable {
                name: "PMI_ID",
                because: "PMI_PORT is".into(),
            })?;
            let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
            if !address.contains(':') || !plain(&address) {
                return Err(bad("PMI_PORT", &address, "it must be host:port"));
            }
            if !plain(&id) {
                return Err(bad("PMI_ID", &id, "it must be one word"));
            }
            Some(Server::Port { address, id })
        }
        (None, None) => None,
    };
    let (rank, size) = place.unzip();
    let slurm =
        text("SLURM_STEP_NUM_NODES")?.as_deref() == Some("1") && text("PMI_JOBID")?.is_some();
    let local = count(text, "MPI_LOCALNRANKS")?.or(if slurm { size } else { None });
    let way = match server {
        Some(server) => Way::Pmi(server, version),
        None if place.is_some() => Way::Nothing,
        None => return Ok(None),
    };
    Ok(Some(Started {
        by: "a launcher with PMI",
        rank,
        size,
        local,
        host: None,
        job: None,
        way,
    }))
}

fn pmix(text: &Text<'_>) -> Result<Option<Started>, BootError> {
    let (Some(job), Some(rank)) = (text("PMIX_NAMESPACE")?, text("PMIX_RANK")?) else {
        return Ok(None);
    };
    // Slurm says how many there are; so a step of one task needs no server.
    let of_slurm = match text("SLURM_MPI_TYPE")?.is_some_and(|kind| kind.starts_with("pmix")) {
        true => slurm(text)?,
        false => None,
    };
    let rank = number("PMIX_RANK", &rank, 0, MAX_RANKS as u64 - 1)? as usize;
    Ok(Some(Started {
        by: "a launcher with PMIx",
        rank: Some(rank),
        way: Way::Pmix,
        size: of_slurm.as_ref().and_then(|slurm| slurm.size),
        local: of_slurm.as_ref().and_then(|slurm| slurm.local),
        host: of_slurm.and_then(|slurm| slurm.host),
        job: Some(job),
    }))
}

fn slurm(text: &Text<'_>) -> Result<Option<Started>, BootError> {
    // The other variables are there in batch scripts too, which are no tasks of a step.
    if text("SLURM_STEP_NUM_TASKS")?.is_none() {
        return Ok(None);
    }
    let Some((rank, size)) = place(text, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")? else {
        return Ok(None);
    };
    let host = match text("SLURM_STEP_NODELIST")? {
        Some(list) => {
            let expected = "it does not begin with the name of a host";
            let first = super::slurm::first_host(&list);
            Some(first.ok_or_else(|| bad("SLURM_STEP_NODELIST", &list, expected))?)
        }
        None => None,
    };
    let job = match (text("SLURM_JOB_ID")?, text("SLURM_STEP_ID")?) {
        (Some(job), Some(step)) => Some(format!("{job}.{step}")),
        _ => None,
    };
    let nodes = count(text, "SLURM_STEP_NUM_NODES")?;
    Ok(Some(Started {
        by: "Slurm",
        rank: Some(rank),
        size: Some(size),
        local: (nodes == Some(1)).then_some(size),
        host,
        job,
        way: Way::Nothing,
    }))
}
