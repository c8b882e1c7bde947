//! The thread that starts the ranks and watches them until the last has ended.

use super::error::LaunchError;
use super::guard::Guard;
use super::job::{Job, Output};
use super::meeting::MeetingPoint;
use super::nodes::Nodes;
use super::outcome::{Outcome, RankOutcome};
use super::output::Source;
use super::printer::{Printer, StdStream};
use super::rank::{Rank, ended_before};
use super::running::{RankProcess, Remote, Running};
use super::signals::{is_ignored, keep_ends_of_children, unblock};
use super::stopped::{LOOK, LOOKS, Stopped, look};
use crate::lock::lock;
use crate::secret::{hex, random};
use crate::wire::MAX_RANKS;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{PidfdFlags, Signal, kill_process_group, pidfd_open};
use signal_hook::SigId;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_hal::limits::WithLimit;

/// How long ranks may take after `SIGTERM`.
const AFTER_TERM: Duration = Duration::from_secs(2);
/// How long output is waited for after the last rank has ended: somebody else may hold the other end. Who wants the end
/// at once waits no longer for somebody who reads it, either.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// How long it may take to say that output is lost, where somebody reads that: on a loaded machine longer than
/// [`LAST_OUTPUT`].
const LAST_WORDS: Duration = Duration::from_secs(5);

const FORWARDED: [Signal; 5] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

/// A signal of this process that is passed on.
struct Forwarded {
    signal: Signal,
    pipe: UnixStream,
    id: SigId,
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}

struct Monitor {
    job: Job,
    started: Instant,
    ranks: Vec<Rank>,
    sources: Vec<(usize, Source)>,
    signals: Vec<Forwarded>,
    remote: Remote,
    guard: Option<Guard>,
    /// `None`: there is nothing to be printed.
    printer: Option<Printer>,
    first_failure: Option<usize>,
    /// When the ranks that still run are to get which signal.
    next_step: Option<(Instant, Signal)>,
    asked_to_end: bool,
    /// When to look for ranks that are stopped.
    next_look: Instant,
    /// When the job had to end, if that is not for the ranks alone to say, and how long its output may be unread after that.
    hurry: Option<(Instant, Duration)>,
}

impl Job {
    /// Starts the ranks. If this process ignores SIGCHLD, that gets its default action: the kernel would throw away how the
    /// ranks end.
    ///
    /// # Errors
    ///
    /// If one of them cannot be started; then none is left running.
    pub fn spawn(self) -> Result<Running, LaunchError> {
        start(self)
    }

    /// Starts the ranks and waits for them.
    ///
    /// # Errors
    ///
    /// As [`Job::spawn`]. That ranks fail is no error but an [`Outcome`].
    pub fn run(self) -> Result<Outcome, LaunchError> {
        Ok(self.spawn()?.wait())
    }
}

/// Starts the job in a thread of its own. The kernel kills the ranks when the *thread* that started them ends, so
/// it has to be one that stays until the last of them has ended.
fn start(job: Job) -> Result<Running, LaunchError> {
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
    if let Some(bed) = &job.bed {
        let (nodes, bed) = (job.nodes.as_ref().map_or(1, Nodes::count), bed.nodes());
        if nodes > bed {
            return Err(LaunchError::SmallBed { nodes, bed });
        }
    }
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

impl Monitor {
    fn start(job: Job) -> Result<Self, LaunchError> {
        let meeting = MeetingPoint::choose(&job)?;
        let secret =
            hex(&random::<32>().map_err(|error| LaunchError::io("making a secret", error))?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LaunchError::io("making an event descriptor", error))?;
        let mut monitor = Self {
            started: Instant::now(),
            ranks: Vec::new(),
            sources: Vec::new(),
            signals: Vec::new(),
            remote: Remote {
                processes: Arc::new(Mutex::new(Vec::new())),
                stop: Arc::new(stop),
            },
            guard: None,
            printer: None,
            first_failure: None,
            next_step: None,
            asked_to_end: false,
            next_look: Instant::now() + LOOK,
            hurry: None,
            job,
        };
        // Before the first rank, so that no signal comes in between.
        if monitor.job.forward_signals {
            monitor.listen_to_signals()?;
        }
        if monitor.job.explain || monitor.job.output.is_printed() {
            let printer = Printer::start().map_err(|error| {
                LaunchError::io("starting the thread that prints the output", error)
            })?;
            monitor.printer = Some(printer);
        }
        monitor.guard = Guard::start();
        for rank in 0..monitor.job.ranks {
            monitor.start_rank(rank, &meeting, &secret)?;
        }
        Ok(monitor)
    }

    fn listen_to_signals(&mut self) -> Result<(), LaunchError> {
        let failed = |error| LaunchError::io("listening to signals", error);
        for signal in FORWARDED.into_iter().filter(|each| !is_ignored(*each)) {
            unblock(signal);
            let (pipe, write) = UnixStream::pair().map_err(failed)?;
            pipe.set_nonblocking(true).map_err(failed)?;
            let id =
                signal_hook::low_level::pipe::register(signal.as_raw(), write).map_err(failed)?;
            self.signals.push(Forwarded { signal, pipe, id });
        }
        Ok(())
    }

    fn start_rank(
        &mut self,
        rank: usize,
        meeting: &MeetingPoint,
        secret: &str,
    ) -> Result<(), LaunchError> {
        let (started, pipes) = Rank::start(&self.job, rank, meeting, secret)?;
        let (pid, group) = (started.child.id(), started.group);
        // From here on `Drop` ends the child if anything fails.
        self.ranks.push(started);
        if let Some(guard) = &mut self.guard {
            guard.watch(group);
        }
        let pidfd = pidfd_open(group, PidfdFlags::empty())
            .map_err(|error| LaunchError::io("opening the process of a rank", error))?;
        lock(&self.remote.processes).push(RankProcess {
            pid,
            pidfd: Some(Arc::new(pidfd)),
        });
        if self.job.output.is_printed() || self.job.output == Output::Captured {
            for (pipe, stream) in pipes.into_iter().zip([StdStream::Out, StdStream::Err]) {
                if let Some(pipe) = pipe {
                    let source = Source::new(pipe, stream, rank, self.job.output)
                        .map_err(|error| LaunchError::io("reading the output of a rank", error))?;
                    self.sources.push((rank, source));
                }
            }
        }
        Ok(())
    }

    fn explain(&self, text: std::fmt::Arguments<'_>) {
        if let Some(printer) = self.printer.as_ref().filter(|_| self.job.explain) {
            printer.push(StdStream::Err, format!("tidegate: {text}\n").into_bytes());
        }
    }

    fn watch(mut self) -> Outcome {
        let mut last_output = None;
        let (mut is_unread, mut is_lost) = (false, false);
        loop {
            let mut until = None;
            if self.ranks.iter().all(|rank| rank.ended.is_some()) {
                self.next_step = None;
                let now = Instant::now();
                let last_output = *last_output.get_or_insert(now + LAST_OUTPUT);
                if now >= last_output {
                    self.take_last();
                }
                let stuck_since = self.printer.as_ref().and_then(Printer::stuck_since);
                if self.sources.is_empty() && stuck_since.is_none() {
                    let error = self.printer.as_ref().and_then(Printer::take_error);
                    let Some(error) = error.filter(|_| !is_lost) else {
                        break;
                    };
                    is_lost = true;
                    let error = WithLimit(&error);
                    self.explain(format_args!("some of what was printed is lost: {error}"));
                    continue;
                }
                let give_up = self.give_up_at(stuck_since);
                is_unread = give_up.is_some_and(|at| now >= at);
                if is_unread {
                    break;
                }
                let last_output = Some(last_output).filter(|at| now < *at);
                until = [last_output, give_up].into_iter().flatten().min();
            }
            self.wait(until);
            self.step();
            self.look();
        }
        // What was captured is there for who asked for it.
        while let Some(last) = self.sources.len().checked_sub(1) {
            self.finish(last);
        }
        if let Some(printer) = self.printer.as_ref().filter(|_| is_unread) {
            printer.give_up();
            let since = Instant::now();
            self.explain(format_args!(
                "nobody reads what is printed: the end of it is lost"
            ));
            printer.finish(since, LAST_WORDS);
        }
        let ranks = std::mem::take(&mut self.ranks);
        let outcome = |rank: Rank| {
            let (status, after) = rank.ended?;
            let [stdout, stderr] = rank.captured;
            Some(RankOutcome {
                pid: rank.child.id(),
                status,
                stdout,
                stderr,
                after,
            })
        };
        Outcome {
            ranks: ranks.into_iter().filter_map(outcome).collect(),
            first_failure: self.first_failure,
            is_unread,
            is_lost: is_lost || is_unread,
        }
    }

    /// What the ranks wrote before they ended is in the pipes. What others will write there is not waited for.
    fn take_last(&mut self) {
        for index in (0..self.sources.len()).rev() {
            if !self.sources[index].1.take_last() {
                self.finish(index);
            }
        }
    }

    /// When output that nobody has read since `stuck_since` is given up. Never, as long as the ranks alone decide when the
    /// job ends, or as somebody reads.
    fn give_up_at(&self, stuck_since: Option<Instant>) -> Option<Instant> {
        let (since, patience) = self.hurry?;
        since.max(stuck_since?).checked_add(patience)
    }

    /// Sleeps until something happens, and handles it.
    fn wait(&mut self, until: Option<Instant>) {
        let (stop, signals, sources, ended) = {
            let processes = lock(&self.remote.processes);
            // The lock is not held during the sleep.
            let alive = |(rank, process): (usize, &RankProcess)| {
                Some((rank, Arc::clone(process.pidfd.as_ref()?)))
            };
            let pidfds: Vec<(usize, Arc<OwnedFd>)> =
                processes.iter().enumerate().filter_map(alive).collect();
            drop(processes);
            let mut fds = vec![PollFd::from_borrowed_fd(
                self.remote.stop.as_fd(),
                PollFlags::IN,
            )];
            let mut add = |fd| fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            self.signals
                .iter()
                .for_each(|signal| add(signal.pipe.as_fd()));
            let has_room = |index: &usize| self.sources[*index].1.has_room(self.printer.as_ref());
            let open: Vec<usize> = (0..self.sources.len()).filter(has_room).collect();
            open.iter()
                .for_each(|index| add(self.sources[*index].1.as_fd()));
            pidfds.iter().for_each(|(_, pidfd)| add(pidfd.as_fd()));
            self.printer.iter().for_each(|printer| add(printer.as_fd()));
            let deadline = self
                .next_step
                .map(|(at, _)| at)
                .into_iter()
                .chain(until)
                .chain((!pidfds.is_empty()).then_some(self.next_look))
                .min();
            let timeout = deadline.map(|at| {
                let wait =
                    at.saturating_duration_since(Instant::now()) + Duration::from_micros(500);
                Timespec {
                    tv_sec: wait.as_secs() as _,
                    tv_nsec: wait.subsec_nanos().into(),
                }
            });
            if poll(&mut fds, timeout.as_ref()).is_err() {
                return;
            }
            let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
            let stop = ready.next() == Some(true);
            let signals: Vec<bool> = ready.by_ref().take(self.signals.len()).collect();
            let sources = open.into_iter().zip(ready.by_ref());
            let sources = sources.filter_map(|(index, ready)| ready.then_some(index));
            let sources: Vec<usize> = sources.collect();
            let ended = pidfds.iter().zip(ready.by_ref());
            let ended = ended.filter_map(|((rank, _), ready)| ready.then_some(*rank));
            let ended: Vec<usize> = ended.collect();
            if let (Some(printer), Some(true)) = (&self.printer, ready.next()) {
                printer.hear();
            }
            (stop, signals, sources, ended)
        };
        if stop {
            let _ = rustix::io::read(&self.remote.stop, &mut [0u8; 8]);
            self.hurry = Some((Instant::now(), LAST_OUTPUT));
            self.signal_all(Signal::KILL);
        }
        for index in (0..signals.len()).filter(|index| signals[*index]) {
            let _ = (&self.signals[index].pipe).read(&mut [0; 64]);
            self.forward(self.signals[index].signal);
        }
        for index in sources.into_iter().rev() {
            if !self.sources[index].1.read(self.printer.as_ref()) {
                self.finish(index);
            }
        }
        for rank in &ended {
            self.collect(*rank);
        }
        // When all are collected: who ended with no error may be why another one failed.
        let failed = |rank: &&usize| {
            let (status, _) = self.ranks[**rank].ended.expect("it was just collected");
            !status.success()
        };
        if let (None, Some(rank)) = (self.first_failure, ended.iter().find(failed)) {
            self.fail(*rank);
        }
    }

    fn finish(&mut self, index: usize) {
        let (rank, mut source) = self.sources.remove(index);
        source.finish(self.printer.as_ref());
        let index = usize::from(source.stream() == StdStream::Err);
        self.ranks[rank].captured[index] = std::mem::take(&mut source.pending);
    }

    fn forward(&mut self, signal: Signal) {
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            self.signal_all(signal);
        } else if std::mem::replace(&mut self.asked_to_end, true) {
            self.explain(format_args!("asked to end again: killing the ranks"));
            self.hurry = Some((Instant::now(), LAST_OUTPUT));
            self.signal_all(Signal::KILL);
        } else {
            self.hurry = Some((Instant::now(), self.job.grace));
            self.signal_all(signal);
            self.next_step = self.after_grace(Signal::KILL);
        }
    }

    /// `None`: the grace has no end.
    fn after_grace(&self, signal: Signal) -> Option<(Instant, Signal)> {
        let at = Instant::now().checked_add(self.job.grace)?;
        Some((at, signal))
    }

    /// To the process groups of all ranks that have not ended.
    fn signal_all(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.ended.is_none()) {
            // The process was not waited for, so its number is still its own.
            let _ = kill_process_group(rank.group, signal);
        }
    }

    /// The process of `rank` has ended.
    fn collect(&mut self, rank: usize) {
        let ended = &mut self.ranks[rank];
        // Before the process is waited for: its number, which is the number of its group, is still its own.
        let _ = kill_process_group(ended.group, Signal::KILL);
        lock(&self.remote.processes)[rank].pidfd = None;
        if let Some(guard) = &mut self.guard {
            guard.forget(ended.group);
        }
        // It fails only if somebody else in this program has waited for it: then nobody knows how it ended.
        let status = ended.child.wait().unwrap_or(ExitStatus::from_raw(1 << 8));
        ended.ended = Some((status, self.started.elapsed()));
    }

    /// Reports ranks that are stopped, and those that go on.
    fn look(&mut self) {
        if Instant::now() < self.next_look {
            return;
        }
        self.next_look = Instant::now() + LOOK;
        let now = self.stopped_now();
        for (rank, now) in now.into_iter().enumerate() {
            let before = std::mem::replace(&mut self.ranks[rank].stopped, now);
            let Some(before) = before else { continue };
            let runs = self.ranks[rank].ended.is_none();
            match &mut self.ranks[rank].stopped {
                Some(now) if now.process == before.process => {
                    now.looks += before.looks;
                    if now.looks == LOOKS {
                        let (who, effect, help) = (now.who(rank), now.effect(), now.help());
                        let now = *now;
                        self.explain(format_args!("{who} is {now}: {effect}{help}"));
                    }
                }
                None if before.looks >= LOOKS && runs => {
                    let who = before.who(rank);
                    self.explain(format_args!("{who} is stopped no longer"));
                }
                _ => {}
            }
        }
    }

    /// Which ranks are stopped now.
    fn stopped_now(&self) -> Vec<Option<Stopped>> {
        let processes = lock(&self.remote.processes);
        let each = self.ranks.iter().zip(&*processes);
        each.map(|(rank, process)| look(rank.group, process.pidfd.as_ref()?))
            .collect()
    }

    /// `rank` is the first that has failed.
    fn fail(&mut self, rank: usize) {
        self.first_failure = Some(rank);
        let (status, _) = self.ranks[rank].ended.expect("it has ended");
        let mut before = ended_before(&self.ranks);
        // Perhaps for that.
        for (rank, stopped) in self.stopped_now().into_iter().enumerate() {
            if let Some(stopped) = stopped {
                before += &format!("; {} is {stopped}", stopped.who(rank));
            }
        }
        if self.ranks.iter().any(|rank| rank.ended.is_none()) && self.next_step.is_none() {
            self.next_step = self.after_grace(Signal::TERM);
            let grace = match self.next_step {
                Some(_) => format!("get {:.1?} to end by themselves", self.job.grace),
                None => "may take for ever".to_owned(),
            };
            self.explain(format_args!(
                "rank {rank} failed ({status}){before}; the others {grace}"
            ));
        } else {
            self.explain(format_args!("rank {rank} failed ({status}){before}"));
        }
    }

    fn step(&mut self) {
        let Some((at, signal)) = self.next_step else {
            return;
        };
        if Instant::now() < at || self.ranks.iter().all(|rank| rank.ended.is_some()) {
            return;
        }
        let name = if signal == Signal::TERM {
            "SIGTERM"
        } else {
            "SIGKILL"
        };
        self.explain(format_args!("the ranks that still run get {name}"));
        self.signal_all(signal);
        self.next_step =
            (signal == Signal::TERM).then(|| (Instant::now() + AFTER_TERM, Signal::KILL));
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            let _ = kill_process_group(rank.group, Signal::KILL);
            let _ = rank.child.wait();
        }
    }
}
