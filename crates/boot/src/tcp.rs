//! Ranks that are processes, on one host or many.
//!
//! # Model
//!
//! Rank 0 has the hub. It listens at `MASTER_ADDR:MASTER_PORT`, where every other rank joins. Then each rank has one
//! authenticated TCP connection to its parent in a tree with rank 0 at its root. In a job of few ranks that is rank 0
//! itself. Ranks of one node also pass descriptors over Unix sockets. Each rank has one service thread, and another
//! thread that calls the sink of events, if there is one. Nothing here is on the data path.
//!
//! Only the hub decides how a collective call ends, and tells all ranks the same. So a call that succeeds on one rank
//! succeeds on every rank that lives to see it. If rank 0 is lost, ranks may have different results.
//!
//! # Failure
//!
//! - A rank whose process ends without leaving is [`Event::Lost`](tidegate_hal::control::Event::Lost) at all others, as
//!   soon as the kernel closes its socket. A rank that is only silent (suspended, or with its host cut off) is given up
//!   after `TIDEGATE_SILENCE_MS`. So `Lost` does not prove that a rank cannot run any more, only that the job goes on
//!   without it. A host that vanishes sends neither FIN nor RST, so only silence shows it. The kernel's clocks would
//!   not be enough. Keepalive notices hosts, but not processes that hang, and pauses while data is unacknowledged;
//!   `TCP_USER_TIMEOUT` runs only then. One small message per second and rank, in either direction, notices all of
//!   these cases.
//! - If rank 0 is lost, nothing more can be learnt about the others. Each rank gets `Lost` for rank 0, and then for all
//!   others that had not ended, as cut off. So every wait ends.
//! - If any other rank is lost, those below it in the tree find another parent. Their calls go on.
//! - Rank 0 serves the control plane for the others after it has left, too. It does so in the background, and the end
//!   of its process waits for the others, unless the process fails.
//! - Dropping a [`TcpControl`] while its thread panics reports `Lost`, and not `Left`. So does a process that calls
//!   `exit` without having left, or that ends with an error within a moment after leaving.
//! - A child made by `fork` has the connections, but not the service thread. Calls there return
//!   [`ControlError::Forked`], and its end is not reported. While it keeps the connections open, only silence shows the
//!   death of its parent.

use crate::callers::Callers;
use crate::config::{Config, node_id};
use crate::error::BootError;
use crate::hop::Hop;
use crate::hub::{Hub, arity_of};
use crate::launchers::session::HeldStore;
use crate::local::{LocalControl, check_size, local};
use crate::node::Node;
use crate::process::{self, Again, SAID_AFTER};
use crate::reach::Reach;
use crate::secret::{Key, random};
use crate::service::{Parts, START_MARGIN, Service};
use crate::shared::{RankPhase, RankShared, RankState, ServiceRequest};
use crate::wire::Message;
use std::cell::Cell;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidegate_hal::control::{Control, ControlError, Decision, PANICKED, Proposal, Sink};
use tidegate_hal::ids::TeamId;
use tidegate_hal::lock;
use tidegate_hal::process::Process;
use tidegate_hal::{say, tell};

/// How long rank 0's confirmation that a rank leaves may take before that is reported. At the end of a large job on a busy
/// machine, seconds are usual.
const CONFIRMS: Duration = Duration::from_secs(5);

/// One rank's control plane, in a job whose ranks are processes.
///
/// Made by [`TcpControl::from_env`]; a job of one rank needs no sockets and has none.
#[derive(Debug)]
pub struct TcpControl {
    inner: Inner,
    /// A launcher's store, which is left after everything else has ended.
    _session: Option<HeldStore>,
}

#[derive(Debug)]
enum Inner {
    Solo(LocalControl),
    Rank(Member),
}

struct Member {
    /// The process that has joined.
    process: Process,
    shared: Arc<RankShared>,
    nodes: Vec<usize>,
    /// Held while this rank makes a team: it makes one at a time.
    founds: Mutex<()>,
    service: Option<JoinHandle<()>>,
    /// How long it may take until the end of this rank is known.
    patience: Duration,
    /// Whether the end of this process will be noticed, so that its control plane can serve others until then.
    ends_are_noticed: bool,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("rank", &self.shared.rank)
            .field("size", &self.shared.size)
            .finish_non_exhaustive()
    }
}

impl TcpControl {
    /// Joins the job that the environment describes (see [`Config`] for the variables), or the job of `mpirun` or
    /// `srun`. If there is none, this process is a job of its own.
    ///
    /// # Errors
    ///
    /// A [`BootError`], which names the wrong variable, the ranks that did not come, or the step that failed.
    pub fn from_env() -> Result<Self, BootError> {
        match Config::from_env()? {
            Some(config) => Self::join(config),
            None => Ok(Self::solo()),
        }
    }

    /// A job of one rank, without sockets or threads.
    pub fn solo() -> Self {
        let mut ranks = local(1);
        Self {
            inner: Inner::Solo(ranks.remove(0)),
            _session: None,
        }
    }

    /// Joins a job. Returns when all of its ranks have joined.
    ///
    /// # Errors
    ///
    /// The errors of [`TcpControl::from_env`].
    pub fn join(mut config: Config) -> Result<Self, BootError> {
        let _session = config.session.take();
        if config.size == 1 {
            return Ok(Self {
                _session,
                ..Self::solo()
            });
        }
        let again = if config.from_environment {
            Some(Again::enter(&mut config)?)
        } else {
            None
        };
        let mut started = config.began.unwrap_or_else(Instant::now);
        let key = Key::of_job(&config.secret, &config.job_id, config.size);
        let mut shared = RankShared::new(config.rank, config.size)
            .map_err(|error| BootError::io("making an event descriptor", error))?;
        shared.ends = config.ends.take();
        if let Some(ends) = &shared.ends {
            // The process may have been a rank before.
            ends.note(config.rank, None);
        }
        let shared = Arc::new(shared);
        let node = Node::new(config.rank, key.derive(b"door", b""));
        let (rank, size) = (config.rank, config.size);
        let arity = config.arity.or_else(|| arity_of(size));
        let reach = Reach::new(&config, &key);
        let callers = |listener| {
            Callers::new(listener, key.clone(), rank, size, config.generation)
                .map_err(|error| BootError::io("preparing to listen for the other ranks", error))
        };
        let (hub, parent, callers) = if rank == 0 {
            let listener = match config.listener.take() {
                Some(listener) => listener,
                None => config.listen()?,
            };
            let seed = random().map_err(|error| BootError::io("making random bytes", error))?;
            let hub = Hub::new(size, arity, node_id(&config), seed, config.silence);
            (Some(hub), None, Some(callers(listener)?))
        } else {
            let link = reach.rank_0(config.timeout, &mut started)?;
            let listener = match arity {
                Some(_) => Some(listen_beside(link.stream())?),
                None => None,
            };
            let (listener, port) = listener.unzip();
            let join = Hop::Join {
                node: node_id(&config),
                port: port.unwrap_or(0),
            };
            let attach = Hop::Attach {
                heard: 0,
                all_heard: 0,
            };
            // Rank 0 knows better which ranks are missing.
            let limit = config.timeout.saturating_add(START_MARGIN);
            let parent = reach
                .parent(link, &join, &attach, limit)
                .map_err(BootError::Aborted)?;
            (None, Some(parent), listener.map(callers).transpose()?)
        };
        let service = Service::new(Parts {
            shared: Arc::clone(&shared),
            node,
            hub,
            parent,
            callers,
            reach,
            heartbeat: config.heartbeat,
            silence: config.silence,
            started,
            timeout: config.timeout,
        });
        let thread = std::thread::Builder::new()
            .name("tidegate-boot".into())
            .spawn(move || service.run())
            .map_err(|error| BootError::io("starting the thread of the control plane", error))?;
        let mut member = Member {
            process: Process::this(),
            shared,
            nodes: Vec::new(),
            founds: Mutex::new(()),
            service: Some(thread),
            patience: config.silence.saturating_add(Duration::from_secs(5)),
            ends_are_noticed: false,
        };
        member.nodes = member.wait_for_start()?;
        member.ends_are_noticed = process::enlist(&member.shared);
        if let Some(again) = again {
            again.joined(&member.shared);
        }
        Ok(Self {
            inner: Inner::Rank(member),
            _session,
        })
    }
}

/// A socket at the address by which this rank has reached rank 0, and its port. Other ranks reach it there.
fn listen_beside(stream: &TcpStream) -> Result<(TcpListener, u16), BootError> {
    let listening = (|| {
        let address = SocketAddr::new(stream.local_addr()?.ip(), 0);
        let listener = TcpListener::bind(address)?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    })();
    listening.map_err(|error: std::io::Error| BootError::io("listening for other ranks", error))
}

impl Member {
    fn wait_for_start(&self) -> Result<Vec<usize>, BootError> {
        let mut state = lock(&self.shared.state);
        loop {
            match &mut state.phase {
                RankPhase::Joining => {}
                RankPhase::Failed(error) => {
                    let error = error.take();
                    return Err(
                        error.unwrap_or_else(|| BootError::Aborted("it failed before".into()))
                    );
                }
                RankPhase::Running | RankPhase::Left | RankPhase::Closed => {
                    return Ok(state.nodes.clone());
                }
            }
            state = self.wait(state);
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, RankState>) -> MutexGuard<'a, RankState> {
        self.shared
            .changed
            .wait(state)
            .unwrap_or_else(|e| e.into_inner())
    }

    fn wake(&self) {
        self.shared.wake();
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError> {
        self.process.check()?;
        check_size("a message between ranks", bytes.len(), 0)?;
        let size = self.shared.size;
        let to = to.map(|to| {
            let mut to: Vec<u32> = to
                .iter()
                .filter(|rank| **rank < size)
                .map(|rank| *rank as u32)
                .collect();
            to.sort_unstable();
            to.dedup();
            to
        });
        let mut state = lock(&self.shared.state);
        if let Some(reason) = &state.no_message {
            return Err(ControlError::Closed(reason.clone()));
        }
        state
            .requests
            .push_back(ServiceRequest::Say(Message::Notify {
                from: self.shared.rank as u32,
                to,
                bytes: bytes.to_vec(),
            }));
        self.wake();
        Ok(())
    }

    /// Ends this rank's part in the job: in good order, or because of a failure.
    fn end(&self, failure: Option<&str>) {
        if !self.process.is_this() {
            return;
        }
        let good = failure.is_none();
        let mut state = lock(&self.shared.state);
        let rank = self.shared.rank;
        let message = failure.map_or(Message::Leave, |reason| state.failure(rank, reason));
        if !matches!(state.phase, RankPhase::Running) {
            return;
        }
        let reason = "this rank has left the job";
        state.no_calls.get_or_insert_with(|| reason.into());
        state.no_message.get_or_insert_with(|| reason.into());
        state.failed = !good;
        state.requests.push_back(ServiceRequest::End(message));
        self.wake();
        self.shared.changed.notify_all();
        // This waits until the message is received. (Rank 0 receives its own, once the others have its descriptors.)
        let began = Instant::now();
        let deadline = if self.shared.rank == 0 && good {
            None
        } else {
            began.checked_add(self.patience)
        };
        let said = Cell::new(false);
        let says_at = began
            + if self.shared.rank == 0 {
                SAID_AFTER
            } else {
                CONFIRMS
            };
        // What has been confirmed ends soon: the wait for the ranks below is short.
        let speaks = |state: &RankState| {
            let is_near = state.confirmed && matches!(state.phase, RankPhase::Running);
            !said.get() && !is_near
        };
        let waits = |state: &RankState| match &state.phase {
            RankPhase::Running => true,
            // If the end of the process would not be noticed, this has to wait for the others.
            RankPhase::Left => self.shared.rank == 0 && good && !self.ends_are_noticed,
            _ => false,
        };
        while waits(&state) {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                state.abandoned = true;
                self.wake();
                // This is not under the lock. A subscriber may block, or end the process, and that takes the lock.
                drop(state);
                tell(|| tracing::warn!("rank 0 did not acknowledge that this rank ends"));
                return;
            }
            let next = deadline.into_iter();
            let next = next.chain(speaks(&state).then_some(says_at)).min();
            state = match next {
                None => self.wait(state),
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    let waited = self.shared.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(|e| e.into_inner()).0
                }
            };
            if waits(&state) && speaks(&state) && Instant::now() >= says_at {
                said.set(true);
                drop(state);
                let rank = self.shared.rank;
                let text = format!(
                    "rank {rank} leaves the job, and waits until {}",
                    match rank {
                        0 => "the ranks of its node have taken its descriptors",
                        _ => "rank 0 has heard of it",
                    }
                );
                say!(text, std::io::stderr());
                state = lock(&self.shared.state);
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // All of it belongs to the parent: the thread, and whatever the thread is using.
            std::mem::forget((self.service.take(), Arc::clone(&self.shared)));
            return;
        }
        self.end(std::thread::panicking().then_some(PANICKED));
        let mut state = lock(&self.shared.state);
        // If the rank has left, its service goes on as long as it is needed.
        if !matches!(state.phase, RankPhase::Left) {
            state.abandoned = true;
            drop(state);
            self.wake();
            if let Some(service) = self.service.take()
                && !self.shared.is_served_here()
                && service.join().is_err()
            {
                tell(|| tracing::error!("the service of the control plane panicked"));
            }
        } else {
            drop(state);
        }
        self.shared.events.close_and_join();
    }
}

impl Control for TcpControl {
    fn rank(&self) -> usize {
        match &self.inner {
            Inner::Solo(solo) => solo.rank(),
            Inner::Rank(member) => member.shared.rank,
        }
    }

    fn size(&self) -> usize {
        match &self.inner {
            Inner::Solo(solo) => solo.size(),
            Inner::Rank(member) => member.shared.size,
        }
    }

    /// # Panics
    ///
    /// If the rank is not less than the number of ranks.
    fn node(&self, rank: usize) -> usize {
        match &self.inner {
            Inner::Solo(solo) => solo.node(rank),
            Inner::Rank(member) => member.nodes[rank],
        }
    }

    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, ControlError> {
        match &self.inner {
            Inner::Solo(solo) => solo.exchange_in(team, label, bytes),
            Inner::Rank(member) => member.exchange(team, label, bytes),
        }
    }

    fn confer_in(
        &self,
        team: TeamId,
        label: &str,
        proposal: Proposal,
    ) -> Result<Decision, ControlError> {
        match &self.inner {
            Inner::Solo(solo) => solo.confer_in(team, label, proposal),
            Inner::Rank(member) => member.confer(team, label, proposal),
        }
    }

    fn found(&self, name: &str, ranks: &[usize]) -> Result<TeamId, ControlError> {
        match &self.inner {
            Inner::Solo(solo) => solo.found(name, ranks),
            Inner::Rank(member) => member.found(name, ranks),
        }
    }

    fn dissolve(&self, team: TeamId) {
        match &self.inner {
            Inner::Solo(solo) => solo.dissolve(team),
            Inner::Rank(member) => member.dissolve(team),
        }
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError> {
        match &self.inner {
            Inner::Solo(solo) => solo.notify(to, bytes),
            Inner::Rank(member) => member.notify(to, bytes),
        }
    }

    fn subscribe(&self, sink: Sink) {
        match &self.inner {
            Inner::Solo(solo) => solo.subscribe(sink),
            Inner::Rank(member) if !member.process.is_this() => {}
            Inner::Rank(member) => member.shared.events.subscribe(sink),
        }
    }

    /// Tells the others. Rank 0's control plane goes on in the background.
    fn leave(&self) {
        match &self.inner {
            Inner::Solo(solo) => solo.leave(),
            Inner::Rank(member) => member.end(None),
        }
    }

    fn fail(&self, reason: &str) {
        match &self.inner {
            Inner::Solo(solo) => solo.fail(reason),
            Inner::Rank(member) => member.end(Some(reason)),
        }
    }

    fn follows(&self, rank: usize, why: &str) {
        match &self.inner {
            Inner::Rank(member) if member.process.is_this() => member.shared.follows(rank, why),
            // A job of one rank has no account of failures, and a child has no part in the job.
            Inner::Rank(_) | Inner::Solo(_) => {}
        }
    }
}

mod calls;
#[cfg(test)]
mod tests;
