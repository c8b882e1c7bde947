//! Finds out from the environment which launcher started this process.
//!
//! # Model
//!
//! This is a pure function of the variables. A launcher may be started by another launcher (`mpirun` in a job of Slurm,
//! or `mpiexec` with daemons that `srun` started), and the variables of the outer one are still set. So the launchers
//! that can only be the inner one are checked first.
//!
//! In a batch script of Slurm, and in a shell of `salloc`, the variables of the job are set. But this process is no
//! task of a step, so it is alone.
//!
//! # Failure
//!
//! If variables contradict each other, or are invalid, the error names them.

use crate::error::BootError;
use crate::variables::{Text, bad, number, place};
use crate::wire::MAX_RANKS;

/// The variable that chooses the launcher, or none.
pub(crate) const LAUNCHER: &str = tidegate_hal::variables::LAUNCHER.name;

/// The connection to a PMI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// An inherited descriptor.
    Fd(i32),
    /// An address `host:port`, and the name by which the server knows this process.
    Port { address: String, id: String },
}

/// How the processes of a job can find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// Through a PMI server. `Some(2)`: in version 2 of its protocol.
    Pmi(Server, Option<u32>),
    /// Through the PMIx server that the environment names.
    Pmix,
    /// The launcher has no store.
    Nothing,
}

/// The launcher's description of this process, from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    /// The launcher's name, for messages.
    pub(crate) by: &'static str,
    pub(crate) rank: Option<usize>,
    pub(crate) size: Option<usize>,
    /// How many of the ranks are on this host.
    pub(crate) local: Option<usize>,
    /// The host of rank 0, if the launcher tells it.
    pub(crate) host: Option<String>,
    /// A text that distinguishes this job from others on the same hosts.
    pub(crate) job: Option<String>,
    pub(crate) way: StoreKind,
}

/// The launcher that started this process. `None`: no launcher that this crate knows.
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
            Some(_) => StoreKind::Pmix,
            None => StoreKind::Nothing,
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
        Some(server) => StoreKind::Pmi(server, version),
        None if place.is_some() => StoreKind::Nothing,
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
    // Slurm gives the number of tasks, so a step of one task needs no server.
    let of_slurm = if text("SLURM_MPI_TYPE")?.is_some_and(|kind| kind.starts_with("pmix")) {
        slurm(text)?
    } else {
        None
    };
    let rank = number("PMIX_RANK", &rank, 0, MAX_RANKS as u64 - 1)? as usize;
    Ok(Some(Started {
        by: "a launcher with PMIx",
        rank: Some(rank),
        way: StoreKind::Pmix,
        size: of_slurm.as_ref().and_then(|slurm| slurm.size),
        local: of_slurm.as_ref().and_then(|slurm| slurm.local),
        host: of_slurm.and_then(|slurm| slurm.host),
        job: Some(job),
    }))
}

fn slurm(text: &Text<'_>) -> Result<Option<Started>, BootError> {
    // The other variables are also set in batch scripts, which are no tasks of a step.
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
        way: StoreKind::Nothing,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Started>, BootError> {
        started(&|name| {
            let found = variables.iter().find(|(own, _)| *own == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        })
    }

    const OPEN_MPI: &[(&str, &str)] = &[
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_NAMESPACE", "17"),
        ("PMIX_RANK", "1"),
    ];
    const HYDRA: &[(&str, &str)] = &[
        ("PMI_FD", "6"),
        ("PMI_RANK", "2"),
        ("PMI_SIZE", "3"),
        ("MPI_LOCALNRANKS", "3"),
    ];
    const SRUN: &[(&str, &str)] = &[
        ("SLURM_JOB_ID", "12"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_NODELIST", "node[07-08]"),
    ];
    /// A step whose tasks are daemons of a launcher.
    const PMIX_OF_SRUN: &[(&str, &str)] = &[
        ("SLURM_MPI_TYPE", "pmix_v4"),
        ("PMIX_NAMESPACE", "slurm.pmix.12.0"),
        ("PMIX_RANK", "1"),
    ];

    #[test]
    fn launchers_are_known_by_their_variables() {
        let found = read(OPEN_MPI).unwrap().unwrap();
        assert_eq!((found.by, &found.way), ("Open MPI", &StoreKind::Pmix));
        assert_eq!(
            (found.rank, found.size, found.local),
            (Some(1), Some(4), Some(2))
        );
        assert_eq!(found.job.as_deref(), Some("17"));

        let found = read(HYDRA).unwrap().unwrap();
        assert_eq!(found.way, StoreKind::Pmi(Server::Fd(6), None));
        assert_eq!(
            (found.rank, found.size, found.local),
            (Some(2), Some(3), Some(3))
        );

        let port = [("PMI_PORT", "vm:4000"), ("PMI_ID", "2")];
        let found = read(&port).unwrap().unwrap();
        let (address, id) = ("vm:4000".to_owned(), "2".to_owned());
        assert_eq!(
            found.way,
            StoreKind::Pmi(Server::Port { address, id }, None)
        );
        assert_eq!((found.rank, found.size), (None, None));

        let found = read(SRUN).unwrap().unwrap();
        assert_eq!((found.by, &found.way), ("Slurm", &StoreKind::Nothing));
        assert_eq!(
            (found.rank, found.size, found.local),
            (Some(1), Some(4), None)
        );
        assert_eq!(found.host.as_deref(), Some("node07"));
        assert_eq!(found.job.as_deref(), Some("12.0"));

        let found = read(&[SRUN, PMIX_OF_SRUN].concat()).unwrap().unwrap();
        assert_eq!(
            (found.rank, found.size, &found.way),
            (Some(1), Some(4), &StoreKind::Pmix)
        );
        // The server does not tell the number of ranks.
        let found = read(&OPEN_MPI[3..]).unwrap().unwrap();
        assert_eq!(
            (found.rank, found.size, &found.way),
            (Some(1), None, &StoreKind::Pmix)
        );
    }

    #[test]
    fn the_inner_launcher_counts() {
        for (inner, outer) in [
            (OPEN_MPI, SRUN),
            (OPEN_MPI, HYDRA),
            (HYDRA, SRUN),
            (HYDRA, PMIX_OF_SRUN),
        ] {
            let alone = read(inner).unwrap();
            assert_eq!(read(&[inner, outer].concat()).unwrap(), alone);
        }
    }

    #[test]
    fn a_process_that_is_no_task_of_a_step_is_alone() {
        assert_eq!(read(&[]).unwrap(), None);
        // As in a batch script.
        let batch = [
            ("SLURM_JOB_ID", "12"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "4"),
        ];
        assert_eq!(read(&batch).unwrap(), None);
        for all in [OPEN_MPI, HYDRA, SRUN] {
            let none = [all, &[("TIDEGATE_LAUNCHER", "none")]].concat();
            assert_eq!(read(&none).unwrap(), None);
        }
    }

    #[test]
    fn the_launcher_can_be_chosen() {
        let all = [OPEN_MPI, HYDRA, SRUN].concat();
        let chosen = |name| read(&[&all[..], &[("TIDEGATE_LAUNCHER", name)]].concat());
        assert_eq!(chosen("pmix").unwrap(), read(OPEN_MPI).unwrap());
        assert_eq!(chosen("pmi").unwrap(), read(HYDRA).unwrap());
        assert_eq!(chosen("slurm").unwrap(), read(SRUN).unwrap());
        let second = chosen("pmi2").unwrap().unwrap();
        assert_eq!(second.way, StoreKind::Pmi(Server::Fd(6), Some(2)));
        for (name, variables) in [("mpi", &all[..]), ("pmi", OPEN_MPI), ("slurm", HYDRA)] {
            let error = read(&[variables, &[("TIDEGATE_LAUNCHER", name)]].concat()).unwrap_err();
            assert!(
                matches!(error, BootError::BadVariable { name: LAUNCHER, .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn contradictions_are_errors_by_name() {
        for (bad, named) in [
            (&[("OMPI_COMM_WORLD_RANK", "1")][..], "OMPI_COMM_WORLD_SIZE"),
            (&[("OMPI_COMM_WORLD_SIZE", "1")], "OMPI_COMM_WORLD_RANK"),
            (
                &[("OMPI_COMM_WORLD_RANK", "4"), ("OMPI_COMM_WORLD_SIZE", "4")],
                "OMPI_COMM_WORLD_RANK",
            ),
            (
                &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "0")],
                "OMPI_COMM_WORLD_SIZE",
            ),
            (&[("PMI_RANK", "x"), ("PMI_SIZE", "2")], "PMI_RANK"),
            (&[("PMI_RANK", "0")], "PMI_SIZE"),
            (&[("PMI_FD", "1")], "PMI_FD"),
            (&[("PMI_FD", "-1")], "PMI_FD"),
            (&[("PMI_PORT", "vm:1")], "PMI_ID"),
            (&[("PMI_PORT", "vm"), ("PMI_ID", "0")], "PMI_PORT"),
            (&[("PMI_PORT", "vm:1"), ("PMI_ID", "0 cmd=x")], "PMI_ID"),
            (&[("PMIX_NAMESPACE", "a"), ("PMIX_RANK", "-2")], "PMIX_RANK"),
            (&[("SLURM_STEP_NUM_TASKS", "2")], "SLURM_PROCID"),
            (
                &[
                    ("SLURM_STEP_NUM_TASKS", "2"),
                    ("SLURM_PROCID", "0"),
                    ("SLURM_STEP_NODELIST", "["),
                ],
                "SLURM_STEP_NODELIST",
            ),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.starts_with(named), "{bad:?}: {error}");
        }
    }
}
