//! What a process owes the jobs that it is in, and how it joins one after the other.
//!
//! # Ends
//!
//! A rank's departure does not wait for the others, and neither does rank 0's, whose service then carries the control plane
//! until they have left, too. What waits for them is the end of the process ([`at_exit`]) and its next job. When the process
//! ends with an error, nothing waits: the error is on the screen already, the launcher gets the status, and the other ranks
//! are told that this one has failed. A forked child has none of the services, and does nothing here.
//!
//! # One job after the other
//!
//! The environment describes the job of a process once; a program may join it, leave, and join again. Each time is a
//! *generation*, and all ranks count alike, since all of them were there each time ([`Again`]). Rank 0 keeps its listening
//! socket from one generation to the next, so that nobody can take the port in between. A rank that is early meets the
//! hub of the job before, is told so, and comes again.
//!
//! # Failure
//!
//! A wait of rank 0 for the others has no limit: an imbalanced program is not an error. After a second it is said for
//! which ranks it waits. They end by leaving, or by being lost.
//!
//! At the end of the process, Rust's `exit` lets no other thread end it. This has two consequences:
//!
//! - A handler of the program's for SIGINT (Ctrl-C) could not end a process that waits. So when the process has said that
//!   it waits, SIGINT, SIGTERM, SIGHUP and SIGQUIT have their default action again and end it.
//! - A subscriber of `tracing` that calls `exit` on the service's thread stays there for ever. So the wait ends when the
//!   service does nothing for the allowed silence, and says so. By then the others have given up rank 0, too.

use crate::config::Config;
use crate::error::BootError;
use crate::lock;
use crate::service::LAST_WORDS;
use crate::shared::{Command, Phase, Shared, Wait};
use crate::wire::Message;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};
use tidegate_hal::process::Process;
use tidegate_hal::tell;

/// A wait for other ranks is said after this long.
pub(crate) const SAID_AFTER: Duration = Duration::from_secs(1);

/// All ranks that this process has been and whose services may still run.
static RANKS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// The process that they are of.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn this_process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Remembers a rank, for the end of the process. Returns whether its end will be noticed.
pub(crate) fn enlist(shared: &Arc<Shared>) -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let mut ranks = lock(&RANKS);
    if PROCESS.swap(this_process(), Ordering::SeqCst) != this_process() {
        // Those of the process that this one was forked from.
        ranks.clear();
    }
    ranks.retain(|rank| rank.strong_count() > 0);
    ranks.push(Arc::downgrade(shared));
    *REGISTERED.get_or_init(|| tidegate_ffi::exit::on_exit(at_exit))
}

/// The process ends.
fn at_exit(status: i32) {
    if PROCESS.load(Ordering::SeqCst) != this_process() {
        return;
    }
    let ranks: Vec<_> = lock(&RANKS).iter().filter_map(Weak::upgrade).collect();
    // Services cannot wait for themselves: a subscriber of `tracing` may have ended the process from one.
    let mine = |rank: &Arc<Shared>| rank.is_served_here();
    let ranks: Vec<_> = ranks.into_iter().filter(|rank| !mine(rank)).collect();
    // What the parent of a process gets to see.
    let status = status & 0xff;
    let carries: Vec<_> = ranks
        .iter()
        .filter(|rank| rank.take_leave(status))
        .collect();
    let until = Some(Instant::now() + LAST_WORDS);
    for rank in &ranks {
        let carries = carries.iter().any(|other| Arc::ptr_eq(other, rank));
        if !carries {
            let _ = rank.wait_for_end(until);
        }
    }
    for rank in carries {
        rank.see_the_others_off(Then::Exit);
    }
}

impl Shared {
    /// Has the service say its last, as the process ends. Returns whether others are carried until they have left.
    fn take_leave(&self, status: i32) -> bool {
        let mut state = lock(&self.state);
        let reason = match state.phase {
            _ if state.failed => return false,
            Phase::Running if status == 0 => {
                Some("its program has ended (exit status 0) and dropped no world".to_owned())
            }
            Phase::Running | Phase::Left if status != 0 => {
                Some(format!("its program has failed (exit status {status})"))
            }
            Phase::Left => None,
            _ => return false,
        };
        let carries = reason.is_none() && self.rank == 0;
        state.failed = reason.is_some();
        let command = match reason {
            Some(reason) => Command::End(Message::Fail { reason }),
            None => Command::Over,
        };
        state.commands.push_back(command);
        drop(state);
        self.wake();
        carries
    }

    /// Waits until rank 0's service has ended, because all others have. Says after a second for which ranks it waits, and
    /// what comes then.
    fn see_the_others_off(&self, then: Then) {
        let mut end = self.wait_for_end(Instant::now().checked_add(SAID_AFTER));
        let next = match then {
            Then::Exit => "its process ends (at once if a signal such as SIGINT asks it to)",
            Then::Job => "its next job begins",
        };
        if end == Err(Wait::Late) {
            if then == Then::Exit {
                restore_signals();
            }
            let remain = in_words(&lock(&self.state).remain);
            let text = format!(
                "rank 0 waits until {remain} leaves the job, whose control plane it carries; then {next}"
            );
            // On another thread: the program's subscriber may never return.
            let name = "tidegate-report".to_owned();
            let speak = std::thread::Builder::new().name(name);
            let _ = speak.spawn(move || say(&text));
            end = self.wait_for_end(None);
        }
        if end == Err(Wait::Stuck) {
            // Without the subscriber and the locks of `stderr`: the service may be stuck in them.
            let text = format!(
                "tidegate: the thread that carries the control plane for the others does nothing any more (does a subscriber \
                 of `tracing` block it, or call `exit`?): rank 0 waits no longer, and {next}\n"
            );
            let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
        }
    }
}

/// What follows a wait of rank 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Exit,
    Job,
}

/// Gives the signals that ask a process to end their default action, where the program handles them: it has ended.
fn restore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let mut now = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the kernel changes nothing, and writes the present action to a place that has its type.
        if unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: the call above has succeeded, so it has written the action.
        let now = unsafe { now.assume_init() }.sa_sigaction;
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&now) {
            // SAFETY: the default action runs no code of this process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// How many ranks are listed.
const LISTED: usize = 16;

fn in_words(ranks: &[usize]) -> String {
    let listed: Vec<_> = ranks.iter().take(LISTED).map(usize::to_string).collect();
    let listed = listed.join(", ");
    match ranks.len() {
        0 => "the last other rank".to_owned(),
        1 => format!("rank {listed}"),
        count if count > LISTED => format!("each of ranks {listed} and {} more", count - LISTED),
        _ => format!("each of ranks {listed}"),
    }
}

/// Says that a wait takes long: on standard error, unless the program's subscriber of `tracing` takes it.
pub(crate) fn say(text: &str) {
    let mut taken = false;
    tell(|| {
        tracing::warn!("{text}");
        taken = tracing::event_enabled!(tracing::Level::WARN);
    });
    if !taken {
        // Where not even this can be written, there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "tidegate: {text}");
    }
}

/// The job that the environment describes.
struct Described {
    /// How many times this process has joined it.
    generation: u64,
    /// On rank 0: where it listens.
    listener: Option<TcpListener>,
    /// This rank, the last time.
    last: Weak<Shared>,
}

static DESCRIBED: Mutex<Described> = Mutex::new(Described {
    generation: 0,
    listener: None,
    last: Weak::new(),
});

/// The right to join the job that the environment describes: one thread at a time.
pub(crate) struct Again(MutexGuard<'static, Described>);

impl Again {
    /// Waits until this process has nothing to do with the job before, and says in `config` which job comes next.
    pub(crate) fn enter(config: &mut Config) -> Result<Self, BootError> {
        // A child is no rank, and another thread of its parent may hold the lock for ever.
        static FIRST: OnceLock<Process> = OnceLock::new();
        let first = FIRST.get_or_init(Process::this);
        first.check().map_err(BootError::Forked)?;
        let mut described = lock(&DESCRIBED);
        if let Some(last) = described.last.upgrade() {
            if matches!(lock(&last.state).phase, Phase::Running) {
                let rank = last.rank;
                return Err(BootError::Joined { rank });
            }
            if last.take_leave(0) {
                last.see_the_others_off(Then::Job);
            }
            // The time for the others to come begins now.
            config.began = None;
        }
        config.generation = described.generation;
        if config.rank == 0 {
            if let Some(listener) = config.listener.take() {
                described.listener = Some(listener);
            }
            let listener = match &described.listener {
                Some(listener) => listener,
                None => described.listener.insert(config.listen()?),
            };
            let listener = listener
                .try_clone()
                .map_err(|error| BootError::io("duplicating the listening socket", error))?;
            config.listener = Some(listener);
        }
        Ok(Self(described))
    }

    /// The job has begun.
    pub(crate) fn joined(mut self, shared: &Arc<Shared>) {
        self.0.generation += 1;
        self.0.last = Arc::downgrade(shared);
    }
}
