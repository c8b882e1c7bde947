//! What a process owes the jobs that it is in, and how it joins one after the other.
//!
//! # Ends
//!
//! A rank's departure does not wait for the others, and neither does rank 0's, whose service then carries the control plane
//! until they have left, too. What waits for them is the end of the process ([`at_exit`]) and its next job. A process
//! that ends with an error carries nobody. It waits until rank 0 has heard that this rank has failed, so that the others are
//! told the cause; at most for the allowed silence. A forked child has none of the services, and does nothing here.
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
use crate::shared::{RankPhase, RankShared, ServiceRequest, Wait};
use crate::wire::Message;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};
use tidegate_hal::lock;
use tidegate_hal::process::{Forked, Process};
use tidegate_hal::say;

/// A wait for other ranks is said after this long.
pub(crate) const SAID_AFTER: Duration = Duration::from_secs(1);

/// All ranks that this process has been and whose services may still run.
static RANKS: Mutex<Vec<Weak<RankShared>>> = Mutex::new(Vec::new());

/// Refuses in a child of the process that was the first to be a rank. In a child, another thread of its parent may hold
/// the locks here for ever.
fn check() -> Result<(), Forked> {
    static FIRST: OnceLock<Process> = OnceLock::new();
    FIRST.get_or_init(Process::this).check()
}

/// Remembers a rank, for the end of the process. Returns whether its end will be noticed.
pub(crate) fn enlist(shared: &Arc<RankShared>) -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    if check().is_err() {
        return false;
    }
    let mut ranks = lock(&RANKS);
    ranks.retain(|rank| rank.strong_count() > 0);
    ranks.push(Arc::downgrade(shared));
    *REGISTERED.get_or_init(|| tidegate_ffi::exit::on_exit(at_exit))
}

/// The process ends.
fn at_exit(status: i32) {
    if check().is_err() {
        return;
    }
    let ranks: Vec<_> = lock(&RANKS).iter().filter_map(Weak::upgrade).collect();
    // Services cannot wait for themselves: a subscriber of `tracing` may have ended the process from one.
    let mine = |rank: &Arc<RankShared>| rank.is_served_here();
    let ranks: Vec<_> = ranks.into_iter().filter(|rank| !mine(rank)).collect();
    // What the parent of a process gets to see.
    let status = status & 0xff;
    let carries: Vec<_> = ranks
        .iter()
        .filter(|rank| rank.take_leave(status))
        .collect();
    for rank in &ranks {
        let carries = carries.iter().any(|other| Arc::ptr_eq(other, rank));
        if !carries {
            rank.wait_to_be_heard();
        }
    }
    for rank in carries {
        rank.see_the_others_off(Then::Exit);
    }
}

impl RankShared {
    /// Has the service say its last, as the process ends. Returns whether others are carried until they have left.
    fn take_leave(&self, status: i32) -> bool {
        let mut state = lock(&self.state);
        let reason = match state.phase {
            _ if state.failed => return false,
            RankPhase::Running if status == 0 => {
                Some("its program has ended (exit status 0) and dropped no world".to_owned())
            }
            RankPhase::Running | RankPhase::Left if status != 0 => {
                Some(format!("its program has failed (exit status {status})"))
            }
            RankPhase::Left => None,
            _ => return false,
        };
        let carries = reason.is_none() && self.rank == 0;
        state.failed = reason.is_some();
        let command = match reason {
            Some(reason) => ServiceRequest::End(Message::Fail { reason }),
            None => ServiceRequest::Over,
        };
        state.requests.push_back(command);
        drop(state);
        self.wake();
        carries
    }

    /// Waits until the service has said its last, and rank 0 has heard it; at most for the allowed silence.
    fn wait_to_be_heard(&self) {
        let began = Instant::now();
        let after = |time| began.checked_add(time);
        let silence = self.silence().unwrap_or_default();
        let end = self.wait_for_end(after(silence.min(SAID_AFTER)));
        if end == Err(Wait::Late) && silence > SAID_AFTER {
            report(format!(
                "rank {} ends, and waits until rank 0 has heard why; at most for {silence:.1?}",
                self.rank
            ));
            let _ = self.wait_for_end(after(silence));
        }
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
            let remain = lock(&self.state).remain.clone();
            let remain = match remain.len() {
                0 => "the last other rank".to_owned(),
                1 => in_words(&remain),
                _ => format!("each of {}", in_words(&remain)),
            };
            report(format!(
                "rank 0 waits until {remain} leaves the job, whose control plane it carries; then {next}"
            ));
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

/// Says that a wait takes long, on another thread: the program's subscriber may never return.
fn report(text: String) {
    let name = "tidegate-report".to_owned();
    let speak = move || say!(text, std::io::stderr());
    // Without a thread it is not said: the wait is the same.
    let _ = std::thread::Builder::new().name(name).spawn(speak);
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

/// `rank 3`, or `ranks 3, 5 and 1 more`.
pub fn in_words(ranks: &[usize]) -> String {
    let listed: Vec<_> = ranks.iter().take(LISTED).map(usize::to_string).collect();
    let listed = listed.join(", ");
    match (ranks.len(), ranks.len().saturating_sub(LISTED)) {
        (1, _) => format!("rank {listed}"),
        (_, 0) => format!("ranks {listed}"),
        (_, more) => format!("ranks {listed} and {more} more"),
    }
}

/// The job that the environment describes.
struct Described {
    /// How many times this process has joined it.
    generation: u64,
    /// On rank 0: where it listens.
    listener: Option<TcpListener>,
    /// This rank, the last time.
    last: Weak<RankShared>,
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
        check().map_err(BootError::Forked)?;
        let mut described = lock(&DESCRIBED);
        if let Some(last) = described.last.upgrade() {
            if matches!(lock(&last.state).phase, RankPhase::Running) {
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
    pub(crate) fn joined(mut self, shared: &Arc<RankShared>) {
        self.0.generation += 1;
        self.0.last = Arc::downgrade(shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_in_words() {
        assert_eq!(in_words(&[2]), "rank 2");
        assert_eq!(in_words(&[0, 2, 3]), "ranks 0, 2, 3");
        let many: Vec<_> = (0..18).collect();
        let text = in_words(&many);
        assert!(text.ends_with(", 14, 15 and 2 more"), "{text}");
    }

    /// On a machine that stands still the service may run late; until then the others do not know why this rank ends.
    #[test]
    fn the_end_of_a_process_waits_for_a_service_that_is_late() {
        let shared = Arc::new(RankShared::new(1, 2).unwrap());
        let (sender, served) = std::sync::mpsc::channel();
        let service = Arc::clone(&shared);
        let service = std::thread::spawn(move || {
            let long = Duration::from_secs(600);
            service.serve_here(long, 2, long);
            sender.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(1500));
            service.close("it has ended");
        });
        served.recv().unwrap();
        shared.wait_to_be_heard();
        assert!(matches!(
            lock(&shared.state).phase,
            RankPhase::Failed(_) | RankPhase::Closed
        ));
        service.join().unwrap();
    }
}
