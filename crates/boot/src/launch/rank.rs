//! A rank's process: how it is started, and what is said of its end.

use super::error::LaunchError;
use super::job::{Input, Job, Output};
use super::meeting::MeetingPoint;
use super::nodes::RankPlace;
use super::stopped::Stopped;
use crate::inherit::{LISTEN_FD, announce};
use crate::process::in_words;
use crate::variables::ADDRESS;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Which of the machine's devices a rank takes.
const DEVICE: &str = "TIDEGATE_DEVICE";

/// How many ranks share the machine's processors, whatever nodes they are of.
const RANKS_HERE: &str = "TIDEGATE_RANKS_HERE";

/// The variables that make a job; none is inherited from a job that the launcher itself may be part of.
const OWN: [&str; 9] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    RANKS_HERE,
    "MASTER_ADDR",
    "MASTER_PORT",
    "TIDEGATE_SECRET",
    LISTEN_FD,
];

pub(super) struct Rank {
    pub(super) child: Child,
    pub(super) group: Pid,
    pub(super) ended: Option<(ExitStatus, Duration)>,
    /// It was stopped at the last look.
    pub(super) stopped: Option<Stopped>,
    pub(super) captured: [Vec<u8>; 2],
}

/// The ends of a rank's output that are read here: of what it says, and of its errors.
pub(super) type Pipes = [Option<OwnedFd>; 2];

impl Rank {
    /// Starts the process of `rank`. It is the caller's to end.
    pub(super) fn start(
        job: &Job,
        rank: usize,
        meeting: &MeetingPoint,
        secret: &str,
    ) -> Result<(Self, Pipes), LaunchError> {
        let mut command = Command::new(&job.program);
        command.args(&job.args).process_group(0);
        if let Some(directory) = &job.directory {
            command.current_dir(directory);
        }
        let all_on_one = RankPlace {
            node: 0,
            local: rank,
            of: job.ranks,
        };
        let place = job.nodes.as_ref().and_then(|nodes| nodes.place(rank));
        let RankPlace { node, local, of } = place.unwrap_or(all_on_one);
        let address = match &job.bed {
            Some(bed) => IpAddr::V4(bed.address(node)),
            None => meeting.at.ip(),
        };
        // Of all that makes the job only this may be said otherwise: one machine can have several NICs.
        command.env(ADDRESS, address.to_string());
        if job.nodes.is_some() {
            // All nodes are this machine, and have its devices between them.
            command.env(DEVICE, rank.to_string());
        }
        let own = job.rank_envs.iter().filter(|(of, _, _)| *of == rank);
        command
            .envs(job.envs.iter().map(|(name, value)| (name, value)))
            .envs(own.map(|(_, name, value)| (name, value)));
        for name in OWN {
            command.env_remove(name);
        }
        if job.nodes.is_some() || job.bed.is_some() {
            command.env("TIDEGATE_NODE", format!("node{node}"));
        }
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", job.ranks.to_string())
            .env("LOCAL_RANK", local.to_string())
            .env("LOCAL_WORLD_SIZE", of.to_string())
            .env(RANKS_HERE, job.ranks.to_string())
            .env("MASTER_ADDR", meeting.at.ip().to_string())
            .env("MASTER_PORT", meeting.at.port().to_string())
            .env("TIDEGATE_SECRET", secret);
        let listener = meeting.listener.as_ref();
        let inherited = listener.filter(|_| rank == 0 && job.ranks > 1);
        if let Some(listener) = inherited {
            let value = announce(listener)
                .map_err(|error| LaunchError::io("asking which socket rank 0 inherits", error))?;
            command.env(LISTEN_FD, value);
        }
        let inherited = inherited.map(AsRawFd::as_raw_fd);
        command.stdin(match job.input {
            Input::Inherited if rank == 0 => Stdio::inherit(),
            Input::Inherited | Input::Null => Stdio::null(),
        });
        let stdio = || match job.output {
            Output::Inherited => Stdio::inherit(),
            Output::Discarded => Stdio::null(),
            Output::Labelled | Output::Plain | Output::Captured => Stdio::piped(),
        };
        command.stdout(stdio()).stderr(stdio());
        // First, because the kernel may take back who is told of a parent's death when a process changes its privileges.
        if let Some(bed) = &job.bed {
            bed.enter(node, &mut command);
        }
        let launcher = getpid();
        // SAFETY: between fork and exec the closure makes system calls only (rustix does them without libc's locks,
        // and on success and error alike without allocating: `io::Error` of a raw error number owns no memory).
        // `listener` is open in the child: the parent holds it until all ranks are started.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // The launcher may have ended before that: then nobody would ever end this process.
                if getppid() != Some(launcher) {
                    return Err(rustix::io::Errno::SRCH.into());
                }
                if let Some(listener) = inherited {
                    let listener = BorrowedFd::borrow_raw(listener);
                    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty())?;
                }
                Ok(())
            });
        }
        let failed = |source| LaunchError::Spawn {
            rank,
            program: job.program.clone(),
            source,
        };
        let mut child = command.spawn().map_err(failed)?;
        let out = child.stdout.take().map(OwnedFd::from);
        let err = child.stderr.take().map(OwnedFd::from);
        let group = Pid::from_child(&child);
        let rank = Rank {
            child,
            group,
            ended: None,
            stopped: None,
            captured: [Vec::new(), Vec::new()],
        };
        Ok((rank, [out, err]))
    }
}

/// Who had ended without an error when the first rank failed. That is in order where they have left the job, and is what
/// the failure comes from where they have not: `process::exit(0)` drops no world.
pub(super) fn ended_before(ranks: &[Rank]) -> String {
    let ended = |rank: &Rank| rank.ended.is_some_and(|(status, _)| status.success());
    let ranks = ranks.iter().enumerate();
    let ended: Vec<_> = ranks
        .filter_map(|(rank, each)| ended(each).then_some(rank))
        .collect();
    by_then(&ended)
}

fn by_then(ended: &[usize]) -> String {
    let lost = match ended.len() {
        0 => return String::new(),
        1 => "if others call it lost",
        _ => "those that others call lost",
    };
    let ranks = in_words(ended);
    format!("; by then {ranks} had ended (exit status: 0; without leaving the job, {lost})")
}

#[cfg(test)]
mod tests {
    use super::by_then;

    #[test]
    fn who_had_ended_is_named_in_words() {
        assert_eq!(by_then(&[]), "");
        let one = by_then(&[2]);
        assert!(
            one.starts_with("; by then rank 2 had ended (") && one.ends_with("call it lost)"),
            "{one}"
        );
        let some = by_then(&[0, 2, 3, 9]);
        assert!(
            some.starts_with("; by then ranks 0, 2, 3, 9 had ended ("),
            "{some}"
        );
        assert!(
            some.ends_with("those that others call lost)") && !some.contains(" it "),
            "{some}"
        );
    }
}
