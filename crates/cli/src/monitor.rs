//! What the thread does that starts the ranks and watches them until the last has ended.
//!
//! # Model
//!
//! The thread sleeps until something happens ([`MonitorEvent`]), handles it, and sleeps again. Ranks on other hosts are
//! watched by agents there, whose messages are events, too (`monitor/hosts.rs`).
//!
//! # Failure
//!
//! When a rank ends with an error, the others get a grace, then `SIGTERM`, then `SIGKILL`. [`Failure`] knows what to
//! report. Output that nobody reads delays the end; only a signal to end limits that.

mod hosts;

use super::child::RankChild;
use super::error::LaunchError;
use super::failure::Failure;
use super::guard::Guard;
use super::hosts::HostLink;
use super::job::{Input, Job, Output};
use super::meeting::MeetingPoint;
use super::outcome::{Outcome, RankOutcome};
use super::output::RankStream;
use super::printer::{Printer, StdStream};
use super::rank::{Rank, RankPlacement, stopped_now};
use super::rank_pipe::in_turn;
use super::running::{RankProcess, Remote, SignalPath};
use super::seats::{RankSeat, bind, seats};
use super::signals::Forwarded;
use super::stopped::StoppedRanks;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::process::Signal;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_boot::starter::{Awaited, Ends, hex, random};
use tidegate_hal::limits::WithLimit;
use tidegate_hal::lock;

/// How long ranks may take after `SIGTERM`.
const AFTER_TERM: Duration = Duration::from_secs(2);
/// Requests to end that follow the first within this time are a part of it: systemd sends SIGTERM and SIGHUP at once,
/// and a terminal that closes may send SIGHUP twice.
const SAME_REQUEST: Duration = Duration::from_secs(1);
/// How long hosts may take to say that ranks have ended by `SIGKILL`.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How long the launcher waits for output after the last rank has ended, since another process may still hold the pipe.
/// If the user wants the end at once, it waits for a reader no longer than this, either.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// How long it may take to report that output is lost, if somebody reads the report. On a loaded machine it takes
/// longer than [`LAST_OUTPUT`].
const LAST_WORDS: Duration = Duration::from_secs(5);

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

pub(super) struct Monitor {
    job: Job,
    started: Instant,
    ranks: Vec<Rank>,
    sources: Vec<RankStream>,
    /// The source that is read first next time.
    next_source: usize,
    signals: Vec<Forwarded>,
    /// The connections to the job's hosts, if it has any.
    links: Vec<HostLink>,
    /// How many bytes of input may be sent to rank 0 on its host; `None`: it gets no input.
    input_credit: Option<usize>,
    /// When hosts that do not answer `SIGKILL` are given up.
    give_up_hosts: Option<Instant>,
    pub(super) remote: Remote,
    guard: Option<Guard>,
    /// `None`: nothing is printed.
    printer: Option<Printer>,
    failure: Option<Failure>,
    /// Where the ranks of this machine tell because of which rank they fail.
    ends: Option<Ends>,
    /// When the ranks that still run get which signal.
    next_step: Option<(Instant, Signal)>,
    /// When this process was first asked to end.
    asked_to_end: Option<Instant>,
    watch: StoppedRanks,
    /// If something other than the ranks ends the job: since when, and for how long output may be unread after that.
    hurry: Option<(Instant, Duration)>,
}

impl Monitor {
    /// Starts the ranks.
    pub(super) fn start(job: Job) -> Result<Self, LaunchError> {
        let secret =
            hex(&random::<32>().map_err(|error| LaunchError::io("making a secret", error))?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LaunchError::io("making an event descriptor", error))?;
        let mut monitor = Self {
            started: Instant::now(),
            ranks: Vec::new(),
            sources: Vec::new(),
            next_source: 0,
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
            asked_to_end: None,
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

    /// Watches the ranks until the last has ended, and its output is printed.
    pub(super) fn watch(mut self) -> Outcome {
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
        let first_failure = failure.map(|failure| failure.first(&self.ranks));
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
        let (mut ended, mut over) = (Vec::new(), Vec::new());
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
                    let (source, printer) = (&mut self.sources[index], self.printer.as_ref());
                    if source.has_room(printer) {
                        self.next_source = index + 1;
                    }
                    if !source.read(printer) {
                        over.push(index);
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
        // Removing a source moves those behind it. (Messages of hosts remove sources, too, but those have no pipes.)
        over.sort_unstable();
        for index in over.into_iter().rev() {
            self.finish(index);
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

    /// Sleeps until something happens.
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
        for index in in_turn(self.sources.len(), self.next_source) {
            let source = &self.sources[index];
            if let Some(pipe) = &source.pipe
                && source.has_room(self.printer.as_ref())
            {
                add(pipe.as_fd(), MonitorEvent::Source(index));
            }
        }
        if self.input_credit.is_some_and(|credit| credit > 0) {
            add(rustix::stdio::stdin(), MonitorEvent::Input);
        }
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
            .chain(self.failure.as_ref().and_then(Failure::unsaid_until))
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
            return self.signal_all(signal);
        }
        let now = Instant::now();
        match self.asked_to_end {
            None => {
                self.asked_to_end = Some(now);
                self.hurry = Some((now, self.job.grace));
                self.signal_all(signal);
                self.next_step = self.after_grace(Signal::KILL);
            }
            Some(first) if now < first + SAME_REQUEST => {}
            Some(_) => {
                self.explain(format_args!("asked to end again: killing the ranks"));
                // Asking once more must not put the end off.
                let ends = |(since, patience): (Instant, Duration)| since.checked_add(patience);
                let sooner = self
                    .hurry
                    .and_then(ends)
                    .filter(|at| *at < now + LAST_OUTPUT);
                if sooner.is_none() {
                    self.hurry = Some((now, LAST_OUTPUT));
                }
                self.signal_all(Signal::KILL);
            }
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
        let others_end = self.next_step.is_none() && self.is_running();
        let failure = Failure::new(rank, &self.ranks, others_end, self.job.grace);
        self.failure = Some(failure);
        if others_end {
            self.next_step = self.after_grace(Signal::TERM);
        }
    }

    fn is_running(&self) -> bool {
        self.ranks.iter().any(|rank| rank.ended.is_none())
    }

    /// Reports the failure that ends the job, when that is due.
    fn say_failure(&mut self) {
        let is_limited = self.next_step.is_some();
        let failure = self.failure.as_mut();
        if let Some(line) = failure.and_then(|failure| failure.say(&self.ranks, is_limited)) {
            self.explain(format_args!("{line}"));
        }
    }

    /// After the last rank has ended: reports which ranks failed because of the first that did.
    fn say_what_followed(&mut self) {
        self.say_failure();
        let failure = self.failure.as_ref();
        if let Some(line) = failure.and_then(|failure| failure.what_followed(&self.ranks)) {
            self.explain(format_args!("{line}"));
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
