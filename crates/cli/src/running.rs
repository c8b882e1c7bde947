//! A running job, as the rest of the program sees it.

use super::hosts::HostSender;
use super::outcome::Outcome;
use rustix::process::{Signal, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tidegate_hal::lock;
use tidegate_hal::process::{Forked, Process};

/// A rank's process.
#[derive(Debug)]
pub(super) struct RankProcess {
    pub(crate) pid: u32,
    /// `None` after its end has been collected.
    pub(crate) reach: Option<SignalPath>,
}

/// How a process can be signalled.
#[derive(Debug)]
pub(super) enum SignalPath {
    Here(Arc<OwnedFd>),
    There(HostSender),
}

/// A handle on a running job. It can be cloned and given to other threads.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tidegate_cli::Job;
///
/// let running = Job::new("sleep", 2).arg("60").spawn()?;
/// let remote = running.remote();
/// std::thread::spawn(move || {
///     std::thread::sleep(Duration::from_millis(20));
///     remote.kill();
/// });
/// assert!(!running.wait().success());
/// # Ok::<(), tidegate_cli::LaunchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Remote {
    pub(super) processes: Arc<Mutex<Vec<RankProcess>>>,
    pub(crate) stop: Arc<OwnedFd>,
}

impl Remote {
    /// The process number of a rank, on its host; `None` if there is no such rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let running = Job::new("true", 2).spawn()?;
    /// let remote = running.remote();
    /// assert!(remote.pid(1).is_some() && remote.pid(2).is_none());
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn pid(&self, rank: usize) -> Option<u32> {
        lock(&self.processes).get(rank).map(|process| process.pid)
    }

    /// Sends a signal to the process of one rank (not to its children). It never reaches another process that has got
    /// the same number.
    ///
    /// # Errors
    ///
    /// If there is no such rank, or it has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Job, Signal};
    ///
    /// let running = Job::new("sleep", 2).arg("60").spawn()?;
    /// running.remote().signal(1, Signal::TERM)?;
    /// assert_eq!(running.wait().first_failure, Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signal(&self, rank: usize, signal: Signal) -> io::Result<()> {
        let processes = lock(&self.processes);
        match processes
            .get(rank)
            .and_then(|process| process.reach.as_ref())
        {
            Some(SignalPath::Here(pidfd)) => Ok(pidfd_send_signal(pidfd, signal)?),
            Some(SignalPath::There(host)) => {
                host.signal(rank, signal, false);
                Ok(())
            }
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("rank {rank} is not running"),
            )),
        }
    }

    /// Kills all ranks now.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let running = Job::new("sleep", 2).arg("60").spawn()?;
    /// running.remote().kill();
    /// assert_eq!(running.wait().exit_code(), 128 + 9);
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn kill(&self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// A running job. Dropping it kills the ranks (but not in a forked child).
///
/// # Examples
///
/// ```
/// use tidegate_cli::Job;
///
/// let running = Job::new("sleep", 2).arg("60").spawn()?;
/// drop(running); // kills the ranks
/// # Ok::<(), tidegate_cli::LaunchError>(())
/// ```
#[derive(Debug)]
pub struct Running {
    pub(crate) process: Process,
    pub(crate) remote: Remote,
    pub(crate) monitor: Option<JoinHandle<Outcome>>,
}

impl Running {
    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// The process number of a rank; `None` if there is no such rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let running = Job::new("true", 2).spawn()?;
    /// println!("rank 1 is process {}", running.pid(1).expect("there are two"));
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn pid(&self, rank: usize) -> Option<u32> {
        self.remote.pid(rank)
    }

    /// Like [`Remote::signal`].
    ///
    /// # Errors
    ///
    /// The errors of [`Remote::signal`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Job, Signal};
    ///
    /// let running = Job::new("sleep", 1).arg("60").spawn()?;
    /// running.signal(0, Signal::TERM)?;
    /// assert_eq!(running.wait().exit_code(), 128 + 15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signal(&self, rank: usize, signal: Signal) -> io::Result<()> {
        self.remote.signal(rank, signal)
    }

    /// Waits until all ranks have ended.
    ///
    /// # Panics
    ///
    /// If the thread that watches the ranks has panicked, or if this is a child of the process that started them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let running = Job::new("true", 2).spawn()?;
    /// // Something else can be done here.
    /// assert!(running.wait().success());
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn wait(mut self) -> Outcome {
        assert!(self.process.is_this(), "{Forked}");
        match self.monitor.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("the monitor is only taken here and on drop"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(monitor) = self.monitor.take() {
            if !self.process.is_this() {
                return std::mem::forget(monitor);
            }
            self.remote.kill();
            let _ = monitor.join();
        }
    }
}
