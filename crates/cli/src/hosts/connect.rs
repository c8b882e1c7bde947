//! How a job starts on its hosts.
//!
//! # Model
//!
//! All hosts start at the same time. The launcher tells each host its ranks, and the host answers that they can be
//! started. When all have answered, the launcher tells them to start, and they answer with the process numbers.

use super::file::{HostEntry, Hosts};
use super::frames::{FromHost, HostJob, ToHost};
use super::link::HostLink;
use crate::error::LaunchError;
use crate::job::{Input, Job, Output};
use crate::signals::Forwarded;
use rustix::event::PollFlags;
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tidegate_boot::BootError;
use tidegate_boot::starter::{ADDRESS, Awaited, ENDS_FD, LISTEN_FD, NODE, SECRET, within};
use tidegate_hal::variables;

/// The variable that says how long ranks wait for each other.
const TIMEOUT: &str = variables::RENDEZVOUS_TIMEOUT.name;

/// Variables that are only valid on this machine, or of which each rank gets its own value.
const LOCAL: [&str; 6] = [
    SECRET,
    ADDRESS,
    NODE,
    LISTEN_FD,
    ENDS_FD,
    variables::SSH.name,
];

/// Whether a variable goes to the hosts by default.
fn goes_along(name: &str) -> bool {
    let is_ours = name.starts_with("TIDEGATE_") && !LOCAL.contains(&name);
    is_ours || ["RUST_LOG", "RUST_BACKTRACE", "RUST_LIB_BACKTRACE"].contains(&name)
}

fn timeout(job: &Job) -> Result<Duration, BootError> {
    let said = job.envs.iter().rev().find(|(name, _)| name == TIMEOUT);
    let said = said.map(|(_, value)| value.clone());
    let seconds = match said.or_else(|| std::env::var_os(TIMEOUT)) {
        Some(value) => within(&variables::RENDEZVOUS_TIMEOUT, &value.to_string_lossy())?,
        None => 60,
    };
    Ok(Duration::from_secs(seconds))
}

/// Each host's part of the job.
fn jobs(
    job: &Job,
    hosts: &Hosts,
    shares: &[(&HostEntry, usize)],
    secret: &str,
) -> Result<Vec<HostJob>, LaunchError> {
    let directory = match &job.directory {
        Some(directory) => std::path::absolute(directory),
        None => std::env::current_dir(),
    };
    let directory =
        directory.map_err(|error| LaunchError::io("finding the working directory", error))?;
    let along = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(goes_along));
    let envs: Vec<(OsString, OsString)> = along.chain(job.envs.iter().cloned()).collect();
    let others = shares.iter().rev().map(|(host, _)| host);
    let mut first = 0;
    let mut jobs = Vec::new();
    for (node, (host, here)) in shares.iter().enumerate() {
        let is_first = node == 0 && shares.len() > 1;
        let own_name = || host.name.clone();
        let here_envs = job
            .rank_envs
            .iter()
            .filter(|(rank, _, _)| (first..first + here).contains(rank));
        jobs.push(HostJob {
            program: job.program.clone(),
            args: job.args.clone(),
            directory: directory.clone().into(),
            envs: envs.clone(),
            rank_envs: here_envs.cloned().collect(),
            ranks: job.ranks,
            first,
            here: *here,
            node,
            name: host.to_string(),
            address: is_first.then(|| hosts.address.clone().unwrap_or_else(own_name)),
            other: others
                .clone()
                .find(|_| is_first)
                .map(|other| other.name.clone()),
            bind: job.bind,
            verbose: job.verbose,
            is_discarded: job.output == Output::Discarded,
            has_input: first == 0 && job.input == Input::Inherited,
            secret: secret.to_owned(),
        });
        first += here;
    }
    Ok(jobs)
}

/// The hosts while they start.
struct Starting<'a> {
    links: Vec<HostLink>,
    /// For each host, whether an answer is missing.
    waits: Vec<bool>,
    signals: &'a [Forwarded],
    limit: Duration,
    until: Instant,
}

/// Starts the ranks of a job on its hosts. Returns the connections, and the process of each rank.
pub(crate) fn connect(
    job: &Job,
    hosts: &Hosts,
    secret: &str,
    signals: &[Forwarded],
) -> Result<(Vec<HostLink>, Vec<u32>), LaunchError> {
    let slots = hosts.slots();
    if job.ranks > slots {
        return Err(LaunchError::Slots {
            slots,
            ranks: job.ranks,
        });
    }
    let limit = timeout(job)?;
    let shares = hosts.shares(job.ranks);
    let jobs = jobs(job, hosts, &shares, secret)?;
    let mut starting = Starting {
        links: Vec::new(),
        waits: Vec::new(),
        signals,
        limit,
        until: Instant::now() + limit,
    };
    let address = jobs[0].address.clone().unwrap_or_default();
    for (job, (host, _)) in jobs.into_iter().zip(shares) {
        let ranks = job.first..job.first + job.here;
        let link = HostLink::start(hosts, host, ranks, limit)?;
        link.sender().send(&ToHost::Job(Box::new(job)));
        starting.links.push(link);
    }
    let mut port = None;
    starting.hear(|host, message| match message {
        FromHost::Ready { port: taken } => {
            port = taken.filter(|_| host == 0).or(port);
            Ok(true)
        }
        other => Err(other),
    })?;
    for link in &starting.links {
        link.sender().send(&ToHost::Start {
            host: address.clone(),
            port: port.unwrap_or_default(),
        });
    }
    let mut left: Vec<usize> = starting
        .links
        .iter()
        .map(|link| link.ranks().len())
        .collect();
    let mut pids = vec![0; job.ranks];
    starting.hear(|host, message| match message {
        FromHost::Started { rank, pid } if rank < pids.len() && left[host] > 0 => {
            pids[rank] = pid;
            left[host] -= 1;
            Ok(left[host] == 0)
        }
        other => Err(other),
    })?;
    Ok((std::mem::take(&mut starting.links), pids))
}

/// If the job does not start, all hosts end their ranks at the same time.
impl Drop for Starting<'_> {
    fn drop(&mut self) {
        HostLink::end_all(&mut self.links);
    }
}

impl Starting<'_> {
    /// Handles messages of the hosts with `take`, until it has said for each host that it is done. Messages that it
    /// returns are kept.
    fn hear(
        &mut self,
        mut take: impl FnMut(usize, FromHost) -> Result<bool, FromHost>,
    ) -> Result<(), LaunchError> {
        self.waits = vec![true; self.links.len()];
        while self.waits.contains(&true) {
            self.wait()?;
            for (link, (host, waits)) in
                self.links.iter_mut().zip(self.waits.iter_mut().enumerate())
            {
                link.hear_errors();
                let mut messages = Vec::new();
                let is_over = link.hear(&mut messages);
                for message in messages {
                    if let FromHost::Failed { reason, code } = message {
                        return Err(link.failed(reason, code));
                    }
                    match take(host, message) {
                        Ok(is_all) => *waits &= !is_all,
                        Err(message) => link.keep(message),
                    }
                }
                is_over.map_err(|reason| link.failed(reason, 1))?;
            }
        }
        Ok(())
    }

    /// Sleeps until a host has sent something.
    fn wait(&self) -> Result<(), LaunchError> {
        let mut awaited = Awaited::default();
        // Other signals are passed on when there are ranks. Until then their descriptors would stay ready.
        let ends = |signal: &&Forwarded| !matches!(signal.signal, Signal::USR1 | Signal::USR2);
        for signal in self.signals.iter().filter(ends) {
            awaited.add(Some(signal.signal), signal.as_fd(), PollFlags::IN);
        }
        for link in &self.links {
            for fd in link.out().into_iter().chain(link.errors()) {
                awaited.add(None, fd, PollFlags::IN);
            }
        }
        let is_late = Instant::now() >= self.until;
        let ready = awaited.wait(Some(self.until)).unwrap_or_default();
        if let Some(signal) = ready.into_iter().find_map(|(signal, _)| signal) {
            return Err(LaunchError::Interrupted(signal));
        }
        if is_late {
            let limit = self.limit;
            let silent = self
                .waits
                .iter()
                .position(|waits| *waits)
                .unwrap_or_default();
            let reason = format!(
                "its ranks have not started within {limit:.0?} ({TIMEOUT} says how long that may take)"
            );
            return Err(self.links[silent].failed(reason, 1));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal for the ranks waits until there are some, and wakes nothing before.
    #[test]
    fn a_signal_for_ranks_that_do_not_run_yet_waits() {
        let signals = Forwarded::listen().unwrap();
        let limit = Duration::from_millis(50);
        let starting = Starting {
            links: Vec::new(),
            waits: Vec::new(),
            signals: &signals,
            limit,
            until: Instant::now() + limit,
        };
        signal_hook::low_level::raise(Signal::USR1.as_raw()).unwrap();
        let mut turns = 0;
        while Instant::now() < starting.until {
            starting.wait().unwrap();
            turns += 1;
        }
        // Signals of other tests may end a sleep, too.
        assert!(turns < 10, "{turns} turns");
    }
}
