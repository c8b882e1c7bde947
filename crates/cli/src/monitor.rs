//! The thread that starts the ranks and watches them until the last has ended.

mod hosts;

use super::causes::first;
use super::child::RankChild;
use super::error::LaunchError;
use super::guard::Guard;
use super::hosts::HostLink;
use super::job::{Input, Job, Output};
use super::meeting::MeetingPoint;
use super::nodes::Nodes;
use super::outcome::{Outcome, RankOutcome};
use super::output::RankStream;
use super::printer::{Printer, StdStream};
use super::rank::{Rank, RankPlacement, by_then};
use super::running::{RankProcess, Remote, Running, SignalPath};
use super::seats::{RankSeat, bind, seats};
use super::signals::{Forwarded, keep_ends_of_children};
use super::stopped::{Stopped, StoppedRanks};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::process::Signal;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_boot::starter::{Awaited, Ends, MAX_RANKS, hex, in_words, random};
use tidegate_hal::limits::WithLimit;
use tidegate_hal::lock;

/// How long ranks may take after `SIGTERM`.
const AFTER_TERM: Duration = Duration::from_secs(2);
/// How long hosts may take to say that ranks have ended by `SIGKILL`.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How long the launcher waits for output after the last rank has ended, since another process may still hold the pipe.
/// If the user wants the end at once, it waits for a reader no longer than this, either.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// How long it may take to report that output is lost, if somebody reads the report. On a loaded machine it takes
/// longer than [`LAST_OUTPUT`].
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long the launcher waits for the end of a rank that has failed, before it reports a failure that followed from
/// that. This delays only the report.
const FOR_THE_FIRST: Duration = Duration::from_millis(500);

/// The failure that ends the job.
struct Failure {
    /// The rank that was the first to end with an error.
    ended_first: usize,
    /// The ranks that had ended without an error before.
    before: Vec<usize>,
    /// Whether the others have a limited time since then.
    others_end: bool,
    /// Until when the failure need not be reported, as long as the rank that was the first to fail has not ended.
    unsaid_until: Option<Instant>,
    /// The rank whose status was reported.
    said: Option<usize>,
}

/// Something that has happened.
enum MonitorEvent {
    Stop,
    Signal(usize),
    Source(usize),
    Input,
    Host(usize),
    Rank(usize),
    Printer,
}

struct Monitor {
    job: Job,
    started: Instant,
    ranks: Vec<Rank>,
    sources: Vec<RankStream>,
    signals: Vec<Forwarded>,
    /// The connections to the job's hosts, if it has any.
    links: Vec<HostLink>,
    /// How many bytes of input may be sent to rank 0 on its host; `None`: it gets no input.
    input_credit: Option<usize>,
    /// When hosts that do not answer `SIGKILL` are given up.
    give_up_hosts: Option<Instant>,
    remote: Remote,
    guard: Option<Guard>,
    /// `None`: nothing is printed.
    printer: Option<Printer>,
    failure: Option<Failure>,
    /// Where the ranks of this machine tell because of which rank they fail.
    ends: Option<Ends>,
    /// When the ranks that still run get which signal.
    next_step: Option<(Instant, Signal)>,
    asked_to_end: bool,
    watch: StoppedRanks,
    /// If something other than the ranks ends the job: since when, and for how long output may be unread after that.
    hurry: Option<(Instant, Duration)>,
}

impl Job {
    /// Starts the ranks. If this process ignores SIGCHLD, the signal gets its default action, because the kernel would
    /// discard the ranks' statuses.
    ///
    /// # Errors
    ///
    /// If a rank cannot be started. Then none is left running.
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

/// Starts the job on a thread of its own. The kernel kills the ranks when the *thread* that started them ends, so the
/// thread must stay until the last rank has ended.
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
    if job.hosts.is_some() && (job.nodes.is_some() || job.bed.is_some()) {
        return Err(LaunchError::HostsAndNodes);
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
        let secret =
            hex(&random::<32>().map_err(|error| LaunchError::io("making a secret", error))?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LaunchError::io("making an event descriptor", error))?;
        let mut monitor = Self {
            started: Instant::now(),
            ranks: Vec::new(),
            sources: Vec::new(),
            signals: Vec::new(),
            links: Vec::new(),
            input_credit: None,
            give_up_hosts: None,
            remote: Remote {
                processes: Arc::new(Mutex::new(Vec::new())),
                stop: Arc::new(stop),
            },
            guard: None,
            printer: None,
            failure: None,
            ends: None,
            next_step: None,
            asked_to_end: false,
            watch: StoppedRanks::new(),
            hurry: None,
            job,
        };
        // This comes before the first rank, so that no signal is missed.
        if monitor.job.forward_signals {
            monitor.signals = Forwarded::listen()?;
        }
        // Ranks of other hosts have none of this process's files.
        let is_far = monitor.job.hosts.is_some() && monitor.job.output == Output::Inherited;
        if monitor.job.explain || monitor.job.output.is_printed() || is_far {
            let printer = Printer::start().map_err(|error| {
                LaunchError::io("starting the thread that prints the output", error)
            })?;
            monitor.printer = Some(printer);
        }
        match monitor.job.hosts.clone() {
            Some(hosts) => monitor.start_on_hosts(&hosts, &secret)?,
            None => monitor.start_here(&secret)?,
        }
        Ok(monitor)
    }

    fn start_here(&mut self, secret: &str) -> Result<(), LaunchError> {
        let meeting = MeetingPoint::choose(&self.job)?;
        let mut seats = seats(&self.job, &meeting);
        let lines = bind(&self.job, &mut seats)?;
        for line in lines.iter().filter(|_| self.job.verbose) {
            self.explain(format_args!("{line}"));
        }
        self.guard = Guard::start();
        let ends = Ends::new(self.job.ranks);
        let ends = ends.map_err(|error| LaunchError::io("making a file of memory", error))?;
        for seat in &seats {
            self.start_rank(seat, &meeting, secret, &ends)?;
        }
        self.ends = Some(ends);
        Ok(())
    }

    fn start_rank(
        &mut self,
        seat: &RankSeat,
        meeting: &MeetingPoint,
        secret: &str,
        ends: &Ends,
    ) -> Result<(), LaunchError> {
        let input = match self.job.input {
            Input::Inherited if seat.rank == 0 => Stdio::inherit(),
            Input::Inherited | Input::Null => Stdio::null(),
        };
        let (child, pipes) = RankChild::start(&self.job, seat, meeting, secret, ends, input)?;
        if let Some(guard) = &mut self.guard {
            guard.watch(child.group());
        }
        let (pid, reach) = (child.pid(), child.pidfd().cloned().map(SignalPath::Here));
        lock(&self.remote.processes).push(RankProcess { pid, reach });
        self.ranks.push(Rank {
            pid,
            process: RankPlacement::Here(child),
            ended: None,
            captured: [Vec::new(), Vec::new()],
            because_of: None,
        });
        let source =
            |(stream, pipe)| RankStream::new(Some(pipe), stream, seat.rank, self.job.output);
        self.sources.extend(pipes.into_iter().map(source));
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
                if last_output.is_none() {
                    self.tell_hosts_of_the_last();
                    self.say_what_followed();
                }
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
            self.grant();
            self.step();
            self.look();
        }
        // Captured output is still returned to the caller.
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
        let failure = self.failure.as_ref();
        let first_failure = failure.map(|failure| self.first_to_fail(failure.ended_first));
        let ranks = std::mem::take(&mut self.ranks);
        let outcome = |rank: Rank| {
            let (status, after) = rank.ended?;
            let [stdout, stderr] = rank.captured;
            Some(RankOutcome {
                pid: rank.pid,
                status,
                stdout,
                stderr,
                after,
                because_of: rank.because_of,
            })
        };
        Outcome {
            ranks: ranks.into_iter().filter_map(outcome).collect(),
            first_failure,
            is_unread,
            is_lost: is_lost || is_unread,
        }
    }

    /// Takes the output that the ranks wrote before they ended, which is in the pipes. It does not wait for output of
    /// other processes.
    fn take_last(&mut self) {
        for index in (0..self.sources.len()).rev() {
            if !self.sources[index].take_last() {
                self.finish(index);
            }
        }
    }

    /// When unread output is given up, if nobody has read any since `stuck_since`. `None`: never, because somebody
    /// reads, or because only the ranks decide when the job ends.
    fn give_up_at(&self, stuck_since: Option<Instant>) -> Option<Instant> {
        let (since, patience) = self.hurry?;
        since.max(stuck_since?).checked_add(patience)
    }

    /// Sleeps until something happens, and handles it.
    fn wait(&mut self, until: Option<Instant>) {
        let mut ended = Vec::new();
        for ready in self.sleep(until) {
            match ready {
                MonitorEvent::Stop => {
                    let _ = rustix::io::read(&self.remote.stop, &mut [0u8; 8]);
                    self.hurry = Some((Instant::now(), LAST_OUTPUT));
                    self.signal_all(Signal::KILL);
                }
                MonitorEvent::Signal(index) => {
                    self.signals[index].hear();
                    self.forward(self.signals[index].signal);
                }
                MonitorEvent::Source(index) => {
                    if !self.sources[index].read(self.printer.as_ref()) {
                        self.finish(index);
                    }
                }
                MonitorEvent::Input => self.pass_input_on(),
                MonitorEvent::Host(index) => self.hear_host(index, &mut ended),
                MonitorEvent::Rank(rank) => {
                    self.collect(rank);
                    ended.push(rank);
                }
                MonitorEvent::Printer => {
                    if let Some(printer) = &self.printer {
                        printer.hear();
                    }
                }
            }
        }
        // This comes after all ranks are collected: one that ended without an error may be the reason why another one
        // failed.
        let failed = |rank: &&usize| {
            let ended = self.ranks[**rank].ended;
            ended.is_some_and(|(status, _)| !status.success())
        };
        if let (None, Some(rank)) = (&self.failure, ended.iter().find(failed)) {
            self.fail(*rank);
        }
        self.say_failure();
    }

    /// Sleeps until something happens. The last sources come first, so that removing one does not move those that are
    /// still to be handled.
    fn sleep(&self, until: Option<Instant>) -> Vec<MonitorEvent> {
        let kept = (0..self.links.len()).filter(|host| self.links[*host].has_kept());
        let kept: Vec<MonitorEvent> = kept.map(MonitorEvent::Host).collect();
        if !kept.is_empty() {
            return kept;
        }
        let mut awaited = Awaited::default();
        let mut add = |fd, event| awaited.add(event, fd, PollFlags::IN);
        add(self.remote.stop.as_fd(), MonitorEvent::Stop);
        for (index, signal) in self.signals.iter().enumerate() {
            add(signal.as_fd(), MonitorEvent::Signal(index));
        }
        for (index, source) in self.sources.iter().enumerate().rev() {
            if let Some(pipe) = &source.pipe
                && source.has_room(self.printer.as_ref())
            {
                add(pipe.as_fd(), MonitorEvent::Source(index));
            }
        }
        if self.input_credit.is_some_and(|credit| credit > 0) {
            add(rustix::stdio::stdin(), MonitorEvent::Input);
        }
        // Hosts come after the sources, because a message may remove a source.
        for (host, link) in self.links.iter().enumerate() {
            for fd in link.out().into_iter().chain(link.errors()) {
                add(fd, MonitorEvent::Host(host));
            }
        }
        let mut is_watched = false;
        for (rank, own) in self.ranks.iter().enumerate() {
            if let Some(pidfd) = own.child().and_then(RankChild::pidfd) {
                add(pidfd.as_fd(), MonitorEvent::Rank(rank));
                is_watched = true;
            }
        }
        if let Some(printer) = &self.printer {
            add(printer.as_fd(), MonitorEvent::Printer);
        }
        let deadline = self
            .next_step
            .map(|(at, _)| at)
            .into_iter()
            .chain(until)
            .chain(
                self.failure
                    .as_ref()
                    .and_then(|failure| failure.unsaid_until),
            )
            .chain(is_watched.then_some(self.watch.next()))
            .chain(self.give_up_hosts)
            .min();
        let ready = awaited.wait(deadline).unwrap_or_default();
        ready.into_iter().map(|(event, _)| event).collect()
    }

    fn finish(&mut self, index: usize) {
        let mut source = self.sources.remove(index);
        source.finish(self.printer.as_ref());
        self.ranks[source.rank()].captured[source.stream() as usize] =
            std::mem::take(&mut source.pending);
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

    /// Signals the process groups of all ranks that have not ended.
    fn signal_all(&mut self, signal: Signal) {
        for (rank, own) in self.ranks.iter().enumerate() {
            match &own.process {
                _ if own.ended.is_some() => {}
                RankPlacement::Here(child) => child.signal_all(signal),
                RankPlacement::There(host) => {
                    self.links[*host].sender().signal(rank, signal, true);
                }
            }
        }
        if signal == Signal::KILL && !self.links.is_empty() {
            self.give_up_hosts = Some(Instant::now() + AFTER_KILL);
        }
    }

    /// Handles the end of `rank`'s process, on this machine.
    fn collect(&mut self, rank: usize) {
        let own = &mut self.ranks[rank];
        if let RankPlacement::Here(child) = &mut own.process {
            let status = child.collect(self.guard.as_mut());
            let told = self.ends.as_ref().and_then(|ends| ends.told(rank));
            self.has_ended(rank, status, told);
        }
    }

    /// Notes the end of a rank, and because of which rank it has failed, as it has told.
    fn has_ended(&mut self, rank: usize, status: ExitStatus, told: Option<usize>) {
        lock(&self.remote.processes)[rank].reach = None;
        let own = &mut self.ranks[rank];
        own.ended = Some((status, self.started.elapsed()));
        own.because_of = told.filter(|of| *of != rank && *of < self.job.ranks);
    }

    /// Reports ranks that are stopped, and those that go on. Hosts report their own.
    fn look(&mut self) {
        let ranks = &self.ranks;
        let lines = self.watch.look(|| stopped_now(ranks).collect());
        for line in lines {
            self.explain(format_args!("{line}"));
        }
    }

    /// Notes that `rank` is the first that has ended with an error.
    fn fail(&mut self, rank: usize) {
        let ranks = self.ranks.iter().enumerate();
        let before = ranks.filter_map(|(rank, own)| own.has_succeeded().then_some(rank));
        let others_end = self.next_step.is_none() && self.is_running();
        self.failure = Some(Failure {
            ended_first: rank,
            before: before.collect(),
            others_end,
            // It is reported before the others get a signal.
            unsaid_until: Some(Instant::now() + FOR_THE_FIRST.min(self.job.grace)),
            said: None,
        });
        if others_end {
            self.next_step = self.after_grace(Signal::TERM);
        }
    }

    fn is_running(&self) -> bool {
        self.ranks.iter().any(|rank| rank.ended.is_none())
    }

    /// The rank that was the first to fail, if `rank` has failed. A rank that has ended without an error has not
    /// failed. One that has not ended may have.
    fn first_to_fail(&self, rank: usize) -> usize {
        first(rank, |rank| {
            let of = self.ranks[rank].because_of;
            of.filter(|of| !self.ranks[*of].has_succeeded())
        })
    }

    /// Reports the failure that ends the job, when the rank that was the first to fail has ended, or takes long.
    fn say_failure(&mut self) {
        let Some(failure) = &self.failure else { return };
        let Some(until) = failure.unsaid_until else {
            return;
        };
        let rank = failure.ended_first;
        let first = self.first_to_fail(rank);
        let (said, because) = match self.ranks[first].ended {
            Some(_) => (first, String::new()),
            None if Instant::now() < until => return,
            None => {
                let because = format!(", because of rank {first}, which has not ended yet");
                (rank, because)
            }
        };
        let (status, _) = self.ranks[said].ended.expect("it has ended");
        // The rank that this one names may have ended without an error, but too early.
        let mut before = failure.before.clone();
        let named = self.ranks[said].because_of;
        before.extend(named.filter(|of| self.ranks[*of].has_succeeded()));
        before.sort_unstable();
        before.dedup();
        let mut before = by_then(&before);
        // A stopped rank may be the reason.
        for (rank, stopped) in stopped_now(&self.ranks) {
            if let Some(stopped) = stopped {
                before += &format!("; {} is {stopped}", stopped.who(rank));
            }
        }
        let grace = match self.next_step {
            _ if !failure.others_end || !self.is_running() => String::new(),
            Some(_) => format!(
                "; the others get {:.1?} to end by themselves",
                self.job.grace
            ),
            None => "; the others may take for ever".to_owned(),
        };
        self.explain(format_args!(
            "rank {said} failed ({status}){because}{before}{grace}"
        ));
        if let Some(failure) = &mut self.failure {
            (failure.unsaid_until, failure.said) = (None, Some(said));
        }
    }

    /// After the last rank has ended: reports which ranks failed because of the first that did.
    fn say_what_followed(&mut self) {
        self.say_failure();
        let Some(failure) = &self.failure else { return };
        let first = self.first_to_fail(failure.ended_first);
        let followed = |rank: &usize| {
            *rank != first
                && !self.ranks[*rank].has_succeeded()
                && self.first_to_fail(*rank) == first
        };
        let followed: Vec<_> = (0..self.ranks.len()).filter(followed).collect();
        if followed.is_empty() {
            return;
        }
        let followed = in_words(&followed);
        match self.ranks[first].ended {
            Some((status, _)) if failure.said != Some(first) => self.explain(format_args!(
                "rank {first} failed ({status}); {followed} ended because of it"
            )),
            _ => self.explain(format_args!("{followed} ended because of it")),
        }
    }

    fn step(&mut self) {
        self.give_up_hosts();
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

/// The running ranks of this machine, each with its stopped process, if any.
fn stopped_now(ranks: &[Rank]) -> impl Iterator<Item = (usize, Option<Stopped>)> {
    ranks.iter().enumerate().filter_map(|(rank, own)| {
        let child = own.child().filter(|child| child.pidfd().is_some())?;
        Some((rank, child.look()))
    })
}
