//! The agent: starts the ranks of its host, and reports them to the launcher.
//!
//! # Model
//!
//! One thread does all of the agent's work. It writes to the launcher without a time limit. The launcher reads even if
//! nobody reads its own output, since credit limits how much that is. While the launcher is stopped, the agent may wait
//! in a write.
//!
//! # Failure
//!
//! If the input ends, or nobody takes the output, the launcher or the connection has ended, and the agent kills the
//! ranks. If the agent itself is killed, the kernel kills the ranks, and a guard kills the programs that they have
//! started.

use super::frames::{CREDIT, FromHost, GREETING, HostJob, Incoming, ToHost, VERSION, frame};
use super::inlet::RankInlet;
use crate::child::RankChild;
use crate::error::LaunchError;
use crate::guard::Guard;
use crate::job::{Job, Output};
use crate::meeting::MeetingPoint;
use crate::nodes::RankPlace;
use crate::printer::StdStream;
use crate::rank_pipe::{RankPipe, in_turn};
use crate::seats::{RankSeat, bind};
use crate::stopped::StoppedRanks;
use rustix::event::PollFlags;
use rustix::process::Signal;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tidegate_boot::starter::{Awaited, Ends, address_of, listen_everywhere};

/// How long the agent waits for output after the job's last rank has ended, since another process may hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Why an agent has ended.
enum AgentEnd {
    /// Its ranks have ended, or could not be started, and the launcher knows that.
    Told,
    /// The connection has ended.
    Unheard,
}

impl From<io::Error> for AgentEnd {
    fn from(_: io::Error) -> Self {
        AgentEnd::Unheard
    }
}

/// The connection to the launcher: the standard streams of this process.
struct LauncherLink {
    input: File,
    output: File,
    incoming: Incoming,
}

impl LauncherLink {
    fn open() -> io::Result<Self> {
        // These are descriptors of our own, which the ranks do not get.
        let own = |fd: &dyn Fn() -> io::Result<OwnedFd>| fd().map(File::from);
        let mut launcher = Self {
            input: own(&|| io::stdin().as_fd().try_clone_to_owned())?,
            output: own(&|| io::stdout().as_fd().try_clone_to_owned())?,
            incoming: Incoming::default(),
        };
        // The greeting begins a new line, since a login shell may have printed something.
        let greeting = format!("\n{GREETING}{VERSION}\n");
        launcher.output.write_all(greeting.as_bytes())?;
        Ok(launcher)
    }

    fn say(&mut self, message: &FromHost) -> Result<(), AgentEnd> {
        Ok(self.output.write_all(&frame(message))?)
    }

    fn fail(&mut self, error: &LaunchError) -> AgentEnd {
        let reason = error.to_string();
        let code = error.exit_code();
        match self.say(&FromHost::Failed { reason, code }) {
            Ok(()) => AgentEnd::Told,
            Err(end) => end,
        }
    }

    /// Reads bytes, of which some have come.
    fn read(&mut self) -> Result<(), AgentEnd> {
        let mut chunk = [0; 4096];
        match self.input.read(&mut chunk)? {
            0 => Err(AgentEnd::Unheard),
            count => {
                self.incoming.extend(&chunk[..count]);
                Ok(())
            }
        }
    }

    /// Waits for the next message.
    fn hear(&mut self) -> Result<ToHost, AgentEnd> {
        loop {
            match self.incoming.next() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => self.read()?,
                Err(_) => return Err(AgentEnd::Unheard),
            }
        }
    }
}

/// A rank of this host.
struct HostRank {
    rank: usize,
    child: RankChild,
}

/// One stream of the output of a rank of this host.
struct RankOutlet {
    rank: usize,
    stream: StdStream,
    pipe: RankPipe,
}

/// Something for which an agent waits.
enum AgentReady {
    Launcher,
    /// Rank 0 has room for input, or reads no more.
    Inlet,
    Outlet(usize),
    Rank(usize),
}

struct HostAgent {
    launcher: LauncherLink,
    ranks: Vec<HostRank>,
    outlets: Vec<RankOutlet>,
    /// The outlet that is read first next time.
    next_outlet: usize,
    /// `None`: rank 0 is on another host, or has no input.
    inlet: Option<RankInlet>,
    credit: [usize; 2],
    /// Where the ranks tell because of which rank they fail.
    ends: Ends,
    guard: Option<Guard>,
    watch: StoppedRanks,
    /// The launcher knows that all ranks of the job have ended.
    is_last: bool,
    /// When the agent stops waiting for more output.
    last_output: Option<Instant>,
}

/// The program `tidegate node`. Returns its exit code.
pub(crate) fn agent() -> u8 {
    let served = LauncherLink::open().map_err(AgentEnd::from).and_then(serve);
    match served {
        Ok(()) | Err(AgentEnd::Told) => 0,
        Err(AgentEnd::Unheard) => 1,
    }
}

fn serve(mut launcher: LauncherLink) -> Result<(), AgentEnd> {
    let ToHost::Job(told) = launcher.hear()? else {
        return Err(AgentEnd::Unheard);
    };
    let told = *told;
    let (job, mut seats) = (job(&told), seats(&told));
    let checked = job.check_directory().and_then(|()| bind(&job, &mut seats));
    let lines = checked.map_err(|error| launcher.fail(&error))?;
    for line in lines.into_iter().filter(|_| told.verbose) {
        launcher.say(&FromHost::Say(line))?;
    }
    let mut meeting = match (told.first, &told.address) {
        (0, Some(address)) => listen(address).map(Some),
        (0, None) => MeetingPoint::choose(&job).map(Some),
        (_, _) => Ok(None),
    }
    .map_err(|error| launcher.fail(&error))?;
    let port = meeting.as_ref().map(|meeting| meeting.port);
    launcher.say(&FromHost::Ready { port })?;
    let ToHost::Start { host, port } = launcher.hear()? else {
        return Err(AgentEnd::Unheard);
    };
    let meeting = meeting.get_or_insert_with(|| MeetingPoint {
        host: host.clone(),
        port,
        listener: None,
    });
    let towards = told.other.as_deref().unwrap_or(&meeting.host);
    let address = own_address(towards, meeting);
    let address = address.map_err(|error| launcher.fail(&error))?;
    seats.iter_mut().for_each(|seat| seat.address = address);
    let ends =
        Ends::new(told.ranks).map_err(|error| LaunchError::io("making a file of memory", error));
    let ends = ends.map_err(|error| launcher.fail(&error))?;
    let mut agent = HostAgent {
        ends,
        launcher,
        ranks: Vec::new(),
        outlets: Vec::new(),
        next_outlet: 0,
        inlet: None,
        credit: [CREDIT; 2],
        guard: Guard::start(),
        watch: StoppedRanks::new(),
        is_last: false,
        last_output: None,
    };
    for seat in &seats {
        let started = agent.start(&job, seat, meeting, &told);
        started.map_err(|error| agent.launcher.fail(&error))?;
    }
    for index in 0..agent.ranks.len() {
        let (rank, pid) = (agent.ranks[index].rank, agent.ranks[index].child.pid());
        agent.launcher.say(&FromHost::Started { rank, pid })?;
    }
    // Only the ranks have the socket now.
    meeting.listener = None;
    while !agent.is_over() {
        agent.turn()?;
    }
    Ok(())
}

fn job(told: &HostJob) -> Job {
    let output = if told.is_discarded {
        Output::Discarded
    } else {
        Output::Plain
    };
    let mut job = Job::new(told.program.clone(), told.ranks)
        .args(told.args.iter().cloned())
        .directory(told.directory.clone())
        .bind(told.bind)
        .output(output);
    job.envs = told.envs.clone();
    job.rank_envs = told.rank_envs.clone();
    job
}

fn seats(told: &HostJob) -> Vec<RankSeat> {
    let seat = |local: usize| RankSeat {
        rank: told.first + local,
        place: RankPlace {
            node: told.node,
            local,
            of: told.here,
        },
        node_name: Some(told.name.clone()),
        device: None,
        address: None,
        ranks_here: told.here,
        binding: None,
    };
    (0..told.here).map(seat).collect()
}

/// The addresses of a host, as this host resolves its name.
fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, LaunchError> {
    let found = address_of(host, port).to_socket_addrs();
    found
        .map(Iterator::collect)
        .map_err(|source| LaunchError::Unknown {
            host: host.to_owned(),
            source,
        })
}

/// Takes a port for rank 0 at the address at which the other hosts reach this one. That address may not be this host's
/// own, as behind a gateway, or its name may mean the loopback here. Then only listening at all addresses is left.
fn listen(address: &str) -> Result<MeetingPoint, LaunchError> {
    let is_literal = address.parse::<IpAddr>().is_ok();
    let found = resolve(address, 0)?;
    let usable = |at: &&SocketAddr| is_literal || !at.ip().is_loopback();
    let bound = found
        .iter()
        .filter(usable)
        .find_map(|at| TcpListener::bind(at).ok());
    let failed = |error| LaunchError::io("taking a port for rank 0", error);
    let listener = bound
        .map_or_else(|| listen_everywhere(0), Ok)
        .map_err(failed)?;
    Ok(MeetingPoint {
        host: address.to_owned(),
        port: listener.local_addr().map_err(failed)?.port(),
        listener: Some(listener),
    })
}

/// The address from which this host sends to another.
fn own_address(towards: &str, meeting: &MeetingPoint) -> Result<Option<IpAddr>, LaunchError> {
    // Nothing is sent: connecting such a socket only chooses a route.
    let source = |at: SocketAddr| {
        let any: IpAddr = match at {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(at).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let found = resolve(towards, meeting.port);
    let listens_at = meeting
        .listener
        .as_ref()
        .and_then(|listener| listener.local_addr().ok());
    match (listens_at, found) {
        (Some(at), _) if !at.ip().is_unspecified() => Ok(Some(at.ip())),
        // Only the launcher's ssh knows the name, so this takes the address at which its connection came in.
        (Some(_), Err(_)) => Ok(std::env::var("SSH_CONNECTION")
            .ok()
            .and_then(|said| said.split(' ').nth(2)?.parse().ok())),
        (_, found) => Ok(found?.into_iter().find_map(source)),
    }
}

impl HostAgent {
    fn start(
        &mut self,
        job: &Job,
        seat: &RankSeat,
        meeting: &MeetingPoint,
        told: &HostJob,
    ) -> Result<(), LaunchError> {
        let mut input = Stdio::null();
        if told.has_input && seat.rank == 0 {
            let made = RankInlet::new();
            let (inlet, read) = made.map_err(|error| LaunchError::io("making a pipe", error))?;
            (self.inlet, input) = (Some(inlet), read);
        }
        let (child, pipes) = RankChild::start(job, seat, meeting, &told.secret, &self.ends, input)?;
        if let Some(guard) = &mut self.guard {
            guard.watch(child.group());
        }
        let rank = seat.rank;
        self.ranks.push(HostRank { rank, child });
        let outlet = |(stream, pipe)| RankOutlet { rank, stream, pipe };
        self.outlets.extend(pipes.into_iter().map(outlet));
        Ok(())
    }

    /// Whether the agent is done: the ranks have ended, there is no more of their output, and the launcher waits for no
    /// other rank. If the agent ended earlier, the launcher would take that for a lost connection.
    fn is_over(&self) -> bool {
        let have_ended = self.ranks.iter().all(|rank| rank.child.pidfd().is_none());
        self.is_last && have_ended && self.outlets.is_empty()
    }

    /// Waits until something happens, and handles it.
    fn turn(&mut self) -> Result<(), AgentEnd> {
        let mut over = Vec::new();
        for ready in self.wait() {
            match ready {
                AgentReady::Launcher => self.hear()?,
                AgentReady::Inlet => self.pass_input_on()?,
                AgentReady::Outlet(index) => {
                    if !self.pass_on(index)? {
                        over.push(index);
                    }
                }
                AgentReady::Rank(index) => {
                    let HostRank { rank, child } = &mut self.ranks[index];
                    let status = child.collect(self.guard.as_mut()).into_raw();
                    let (rank, told) = (*rank, self.ends.told(*rank));
                    self.launcher.say(&FromHost::Ended { rank, status, told })?;
                }
            }
        }
        // Removing an outlet moves those behind it.
        over.sort_unstable();
        for index in over.into_iter().rev() {
            self.outlets.remove(index);
        }
        let ranks = &self.ranks;
        let lines = self.watch.look(|| {
            let runs = ranks.iter().filter(|rank| rank.child.pidfd().is_some());
            runs.map(|rank| (rank.rank, rank.child.look())).collect()
        });
        for line in lines {
            self.launcher.say(&FromHost::Say(line))?;
        }
        if self.last_output.is_some_and(|at| Instant::now() >= at) {
            self.last_output = None;
            for outlet in &mut self.outlets {
                outlet.pipe.take_last();
            }
        }
        Ok(())
    }

    /// Sleeps until something happens.
    fn wait(&self) -> Vec<AgentReady> {
        let launcher = self.launcher.input.as_fd();
        let mut awaited = Awaited::default();
        awaited.add(AgentReady::Launcher, launcher, PollFlags::IN);
        // Outlets with a limit reach their ends without another event. Either all of them have one, or none.
        let mut ready = Vec::new();
        for index in in_turn(self.outlets.len(), self.next_outlet) {
            let outlet = &self.outlets[index];
            if self.credit[outlet.stream as usize] == 0 {
                continue;
            }
            if outlet.pipe.is_ending() {
                ready.push(AgentReady::Outlet(index));
            } else {
                awaited.add(
                    AgentReady::Outlet(index),
                    outlet.pipe.as_fd(),
                    PollFlags::IN,
                );
            }
        }
        if let Some(pipe) = self.inlet.as_ref().and_then(RankInlet::pipe) {
            awaited.add(AgentReady::Inlet, pipe, PollFlags::OUT);
        }
        let mut until = self.last_output;
        for (index, rank) in self.ranks.iter().enumerate() {
            if let Some(pidfd) = rank.child.pidfd() {
                awaited.add(AgentReady::Rank(index), pidfd.as_fd(), PollFlags::IN);
                let look = self.watch.next();
                until = Some(until.map_or(look, |until| until.min(look)));
            }
        }
        if !ready.is_empty() {
            until = Some(Instant::now());
        }
        let others = awaited.wait(until).unwrap_or_default();
        ready.extend(others.into_iter().map(|(other, _)| other));
        ready
    }

    /// Handles messages of the launcher.
    fn hear(&mut self) -> Result<(), AgentEnd> {
        self.launcher.read()?;
        loop {
            match self.launcher.incoming.next() {
                Ok(Some(message)) => self.obey(message),
                Ok(None) => return Ok(()),
                Err(_) => return Err(AgentEnd::Unheard),
            }
        }
    }

    fn obey(&mut self, message: ToHost) {
        match message {
            ToHost::Signal {
                rank,
                signal,
                to_all,
            } => {
                let child = self.ranks.iter().find(|own| own.rank == rank);
                if let (Some(own), Some(signal)) = (child, Signal::from_named_raw(signal)) {
                    match to_all {
                        true => own.child.signal_all(signal),
                        // The process may have ended meanwhile.
                        false => drop(own.child.signal(signal)),
                    }
                }
            }
            ToHost::Credit { stream, bytes } => self.credit[stream as usize] += bytes,
            ToHost::Last => {
                self.is_last = true;
                self.last_output = Some(Instant::now() + LAST_OUTPUT);
            }
            ToHost::Input(bytes) => {
                if let Some(inlet) = &mut self.inlet {
                    inlet.take(bytes);
                }
                self.inlet.take_if(|inlet| inlet.is_over());
            }
            // These messages come only once, at the start.
            ToHost::Job(_) | ToHost::Start { .. } => {}
        }
    }

    /// Gives rank 0 its input, as far as there is room.
    fn pass_input_on(&mut self) -> Result<(), AgentEnd> {
        let Some(inlet) = &mut self.inlet else {
            return Ok(());
        };
        let message = match inlet.pass_on() {
            Some(bytes) => FromHost::TookInput { bytes },
            None => FromHost::ClosedInput,
        };
        if inlet.is_over() || matches!(message, FromHost::ClosedInput) {
            self.inlet = None;
        }
        self.launcher.say(&message)
    }

    /// Sends a piece of the output of an outlet. Returns false at its end.
    fn pass_on(&mut self, index: usize) -> Result<bool, AgentEnd> {
        let outlet = &mut self.outlets[index];
        let (rank, stream) = (outlet.rank, outlet.stream);
        let credit = &mut self.credit[stream as usize];
        // Another outlet of the same stream may have used up the credit.
        if *credit == 0 {
            return Ok(true);
        }
        self.next_outlet = index + 1;
        let (message, goes_on) = match outlet.pipe.read(*credit) {
            Some(bytes) if bytes.is_empty() => return Ok(true),
            Some(bytes) => {
                *credit -= bytes.len();
                let output = FromHost::Output {
                    rank,
                    stream,
                    bytes,
                };
                (output, true)
            }
            None => (FromHost::Closed { rank, stream }, false),
        };
        self.launcher.say(&message)?;
        Ok(goes_on)
    }
}
