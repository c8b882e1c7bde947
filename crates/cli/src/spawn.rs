//! Starting a job, on a thread of its own.
//!
//! # Model
//!
//! The kernel kills the ranks when the *thread* that started them ends. So that thread ([`Monitor`]) must stay until
//! the last rank has ended, whatever the caller's thread does.
//!
//! # Failure
//!
//! A job that does not fit together is refused before anything starts. If one rank cannot be started, none is left
//! running.

use super::error::LaunchError;
use super::job::Job;
use super::monitor::Monitor;
use super::nodes::Nodes;
use super::outcome::Outcome;
use super::running::Running;
use super::signals::keep_ends_of_children;
use std::sync::mpsc::sync_channel;
use tidegate_boot::starter::MAX_RANKS;

impl Job {
    /// Starts the ranks. If this process ignores SIGCHLD, the signal gets its default action, because the kernel would
    /// discard the ranks' statuses.
    ///
    /// # Errors
    ///
    /// If the parts of the job do not fit together (ranks, nodes, hosts, bed, bindings), or if a rank cannot be
    /// started. No rank is left running.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let running = Job::new("true", 2).spawn()?;
    /// println!("rank 0 is process {:?}", running.pid(0));
    /// assert!(running.wait().success());
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn spawn(self) -> Result<Running, LaunchError> {
        start(self)
    }

    /// Starts the ranks and waits for them.
    ///
    /// # Errors
    ///
    /// The errors of [`Job::spawn`]. It is no error if ranks fail: see [`Outcome`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let outcome = Job::new("false", 2).run()?; // the ranks fail, and the call does not
    /// assert_eq!((outcome.success(), outcome.exit_code()), (false, 1));
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn run(self) -> Result<Outcome, LaunchError> {
        Ok(self.spawn()?.wait())
    }
}

/// Whether the parts of the job fit together.
fn check(job: &Job) -> Result<(), LaunchError> {
    if job.ranks == 0 || job.ranks > MAX_RANKS {
        return Err(LaunchError::Ranks {
            ranks: job.ranks,
            most: MAX_RANKS,
        });
    }
    if let Some(nodes) = job
        .nodes
        .as_ref()
        .filter(|nodes| nodes.ranks() != job.ranks)
    {
        let (ranks, nodes) = (job.ranks, nodes.clone());
        return Err(LaunchError::Nodes { ranks, nodes });
    }
    if job.hosts.is_some() && (job.nodes.is_some() || job.bed.is_some()) {
        return Err(LaunchError::HostsAndNodes);
    }
    if let Some(bed) = &job.bed {
        let (nodes, bed) = (job.nodes.as_ref().map_or(1, Nodes::count), bed.nodes());
        if nodes > bed {
            return Err(LaunchError::SmallBed { nodes, bed });
        }
    }
    // That of other hosts is checked there.
    match job.hosts {
        None => job.check_directory(),
        Some(_) => Ok(()),
    }
}

fn start(job: Job) -> Result<Running, LaunchError> {
    check(&job)?;
    keep_ends_of_children();
    let (sender, receiver) = sync_channel(1);
    let monitor = std::thread::Builder::new()
        .name("tidegate-launch".into())
        .spawn(move || match Monitor::start(job) {
            Ok(monitor) => {
                let _ = sender.send(Ok(monitor.remote.clone()));
                monitor.watch()
            }
            Err(error) => {
                let _ = sender.send(Err(error));
                Outcome {
                    ranks: Vec::new(),
                    first_failure: None,
                    is_unread: false,
                    is_lost: false,
                }
            }
        })
        .map_err(|error| LaunchError::io("starting the thread that watches the ranks", error))?;
    match receiver.recv() {
        Ok(Ok(remote)) => Ok(Running {
            process: tidegate_hal::process::Process::this(),
            remote,
            monitor: Some(monitor),
        }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(LaunchError::io(
            "starting the ranks",
            std::io::Error::other("the thread that does it panicked"),
        )),
    }
}
