//! A rank's process on this machine: how it is started, signalled, and ended.

use super::bind::Masks;
use super::error::LaunchError;
use super::guard::Guard;
use super::job::{Job, Output};
use super::meeting::MeetingPoint;
use super::printer::StdStream;
use super::rank_pipe::RankPipe;
use super::seats::RankSeat;
use super::stopped::{Stopped, look};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process_group, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use tidegate_boot::starter::{ADDRESS, DEVICE, NODE, RANKS_HERE, SECRET};
use tidegate_boot::starter::{ENDS_FD, Ends, LISTEN_FD, announce};

/// The variables that make a job. The launcher may itself be part of a job, so ranks inherit none of them.
pub(super) const OWN: [&str; 10] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    RANKS_HERE,
    "MASTER_ADDR",
    "MASTER_PORT",
    SECRET,
    LISTEN_FD,
    ENDS_FD,
];

/// A rank's process. Dropping it ends the process, and waits for its end.
pub(super) struct RankChild {
    child: Child,
    group: Pid,
    pidfd: Option<Arc<OwnedFd>>,
    has_ended: bool,
}

/// The ends of a rank's stdout and stderr from which the launcher reads.
pub(super) type Pipes = Vec<(StdStream, RankPipe)>;

/// In a new process: if the launcher ends, the kernel ends this one. Makes system calls only.
pub(super) fn end_with(launcher: Pid) -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The launcher may have ended before this call. Then nothing would ever end this process.
    if getppid() != Some(launcher) {
        return Err(rustix::io::Errno::SRCH);
    }
    Ok(())
}

impl RankChild {
    /// Starts the process of a rank, with this input.
    pub(super) fn start(
        job: &Job,
        seat: &RankSeat,
        meeting: &MeetingPoint,
        secret: &str,
        ends: &Ends,
        input: Stdio,
    ) -> Result<(Self, Pipes), LaunchError> {
        let rank = seat.rank;
        let mut command = Command::new(&job.program);
        command.args(&job.args).process_group(0);
        if let Some(directory) = &job.directory {
            command.current_dir(directory);
        }
        // Of the variables that make a job, the user can override only these, since one machine can have several NICs.
        if let Some(address) = seat.address {
            command.env(ADDRESS, address.to_string());
        }
        if let Some(device) = seat.device {
            command.env(DEVICE, device.to_string());
        }
        let own = job.rank_envs.iter().filter(|(of, _, _)| *of == rank);
        command
            .envs(job.envs.iter().map(|(name, value)| (name, value)))
            .envs(own.map(|(_, name, value)| (name, value)));
        for name in OWN {
            command.env_remove(name);
        }
        if let Some(node) = &seat.node_name {
            command.env(NODE, node);
        }
        let sharing = seat
            .binding
            .as_ref()
            .map_or(seat.ranks_here, |own| own.sharing);
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", job.ranks.to_string())
            .env("LOCAL_RANK", seat.place.local.to_string())
            .env("LOCAL_WORLD_SIZE", seat.place.of.to_string())
            .env(RANKS_HERE, sharing.to_string())
            .env("MASTER_ADDR", &meeting.host)
            .env("MASTER_PORT", meeting.port.to_string())
            .env(SECRET, secret);
        let listener = meeting.listener.as_ref();
        let listener = listener.filter(|_| rank == 0 && job.ranks > 1);
        let listener = listener.map(|listener| (LISTEN_FD, listener.as_fd()));
        let mut inherited = Vec::new();
        for (variable, fd) in listener.into_iter().chain([(ENDS_FD, ends.as_fd())]) {
            let value = announce(fd)
                .map_err(|error| LaunchError::io("asking what a rank inherits", error))?;
            command.env(variable, value);
            inherited.push(fd.as_raw_fd());
        }
        command.stdin(input);
        let stdio = || match job.output {
            Output::Inherited => Stdio::inherit(),
            Output::Discarded => Stdio::null(),
            Output::Labelled | Output::Plain | Output::Captured => Stdio::piped(),
        };
        command.stdout(stdio()).stderr(stdio());
        // This comes first, because the kernel may cancel the signal for a parent's death when a process changes its
        // privileges.
        if let Some(bed) = &job.bed {
            bed.enter(seat.place.node, &mut command);
        }
        let launcher = getpid();
        let masks = seat.binding.as_ref().map(Masks::of);
        // SAFETY: between fork and exec the closure only makes system calls. rustix makes them without libc's locks,
        // and without allocating, on success and on error (`io::Error` of a raw error number owns no memory). The masks
        // were made before. The inherited descriptors are open in the child, because the parent holds `ends`, and the
        // listener until all ranks are started.
        unsafe {
            command.pre_exec(move || {
                end_with(launcher)?;
                for fd in &inherited {
                    let fd = BorrowedFd::borrow_raw(*fd);
                    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
                }
                masks.as_ref().map_or(Ok(()), Masks::apply)
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
        let mut started = Self {
            group: Pid::from_child(&child),
            child,
            pidfd: None,
            has_ended: false,
        };
        let pidfd = pidfd_open(started.group, PidfdFlags::empty())
            .map_err(|error| LaunchError::io("opening the process of a rank", error))?;
        started.pidfd = Some(Arc::new(pidfd));
        let ends = StdStream::BOTH.into_iter().zip([out, err]);
        let pipes = ends.filter_map(|(stream, end)| Some((stream, RankPipe::new(end?))));
        let pipes: io::Result<Pipes> = pipes.map(|(stream, pipe)| Ok((stream, pipe?))).collect();
        let pipes =
            pipes.map_err(|error| LaunchError::io("reading the output of a rank", error))?;
        Ok((started, pipes))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number of its process group, which is also the number of the process.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// It is ready when the process has ended; `None` after its end was collected.
    pub(super) fn pidfd(&self) -> Option<&Arc<OwnedFd>> {
        self.pidfd.as_ref()
    }

    /// Signals the process and everything that it has started.
    pub(super) fn signal_all(&self, signal: Signal) {
        if !self.has_ended {
            // The process was not waited for, so its number is still its own.
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Signals only the process.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.pidfd {
            Some(pidfd) => Ok(pidfd_send_signal(pidfd, signal)?),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A process of the rank that is stopped now, if any.
    pub(super) fn look(&self) -> Option<Stopped> {
        look(self.group, self.pidfd.as_ref()?)
    }

    /// After the process has ended: kills the rest of its group, and returns its status.
    pub(super) fn collect(&mut self, guard: Option<&mut Guard>) -> ExitStatus {
        // This comes before the wait. Until then the number of the process and its group is still its own.
        let _ = kill_process_group(self.group, Signal::KILL);
        self.pidfd = None;
        if let Some(guard) = guard {
            guard.forget(self.group);
        }
        self.has_ended = true;
        // It fails only if other code of this program has waited for the process. Then the status is unknown.
        self.child.wait().unwrap_or(ExitStatus::from_raw(1 << 8))
    }
}

impl Drop for RankChild {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
