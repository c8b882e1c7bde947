//! The obligations of a process to its jobs, and how it joins one job after the other.
//!
//! # Ends
//!
//! A rank does not wait for the others when it leaves. That holds for rank 0, too: its service goes on with the control
//! plane until all others have left. The end of the process ([`at_exit`]) and its next job do wait for the others.
//!
//! A process that ends with an error does not wait for other ranks to leave. It only waits until rank 0 knows that this
//! rank has failed, so that the others learn the cause, and at most for the allowed silence. A forked child has no
//! services, and does nothing here.
//!
//! # One job after the other
//!
//! The environment describes one job, and a program may join it, leave, and join again. Each time is a *generation*.
//! All ranks count generations alike, since each time all of them take part ([`Again`]). Rank 0 keeps its listening
//! socket from one generation to the next, so that no other process can take the port in between. A rank that is early
//! meets the hub of the job before, is told so, and comes again.
//!
//! # Failure
//!
//! Rank 0 waits for the others without a limit, because an imbalanced program is not wrong. After a second it reports
//! for which ranks it waits. The wait ends when they have left or are lost.
//!
//! At the end of the process, no other thread can end it, since Rust's `exit` prevents that. This has two consequences:
//!
//! - A handler of the program for SIGINT (Ctrl-C) could not end a process that waits. So after the report, SIGINT,
//!   SIGTERM, SIGHUP and SIGQUIT have their default action again, and end the process.
//! - If a subscriber of `tracing` calls `exit` on the service's thread, the call never returns. So if the service does
//!   nothing for the allowed silence, the process says so and ends its wait. By then the others have given up rank 0,
//!   too.

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

/// A wait for other ranks is reported after this time.
pub(crate) const SAID_AFTER: Duration = Duration::from_secs(1);

/// All ranks that this process has been, and whose services may still run.
static RANKS: Mutex<Vec<Weak<RankShared>>> = Mutex::new(Vec::new());

/// Returns an error in a child of the process that was the first to be a rank. In a child, the locks here may be held
/// for ever by a thread of its parent.
fn check() -> Result<(), Forked> {
    static FIRST: OnceLock<Process> = OnceLock::new();
    FIRST.get_or_init(Process::this).check()
}

/// Registers a rank for the end of the process. Returns whether that end will be noticed.
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

/// Runs when the process ends.
fn at_exit(status: i32) {
    if check().is_err() {
        return;
    }
    let ranks: Vec<_> = lock(&RANKS).iter().filter_map(Weak::upgrade).collect();
    // A service cannot wait for itself. This may be its thread, since a subscriber of `tracing` may end the process.
    let mine = |rank: &Arc<RankShared>| rank.is_served_here();
    let ranks: Vec<_> = ranks.into_iter().filter(|rank| !mine(rank)).collect();
    // The status that the parent of a process gets.
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
    /// Makes the service send its last message, because the process ends. Returns whether the service must go on until
    /// the others have left.
    fn take_leave(&self, status: i32) -> bool {
        let mut state = lock(&self.state);
        let failure = match state.phase {
            _ if state.failed => return false,
            RankPhase::Running if status == 0 => Some(Message::Fail {
                reason: "its program has ended (exit status 0) and dropped no world".to_owned(),
                first: None,
            }),
            RankPhase::Running | RankPhase::Left if status != 0 => {
                let reason = format!("its program has failed (exit status {status})");
                Some(state.failure(self.rank, &reason))
            }
            RankPhase::Left => None,
            _ => return false,
        };
        let carries = failure.is_none() && self.rank == 0;
        state.failed = failure.is_some();
        let command = failure.map_or(ServiceRequest::Over, ServiceRequest::End);
        state.requests.push_back(command);
        drop(state);
        self.wake();
        carries
    }

    /// Waits until the service has sent its last message, and rank 0 has received it; at most for the allowed silence.
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

    /// Waits until rank 0's service has ended, because all others have. After a second it reports for which ranks it
    /// waits, and what follows.
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
            // This does not use the subscriber, nor the locks of `stderr`: the service may be stuck in them.
            let text = format!(
                "tidegate: the thread that carries the control plane for the others does nothing any more (does a subscriber \
                 of `tracing` block it, or call `exit`?): rank 0 waits no longer, and {next}\n"
            );
            let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
        }
    }
}

/// Reports that a wait takes long. This is on another thread, since the program's subscriber may never return.
fn report(text: String) {
    let name = "tidegate-report".to_owned();
    let speak = move || say!(text, std::io::stderr());
    // If there is no thread, there is no report. The wait is the same.
    let _ = std::thread::Builder::new().name(name).spawn(speak);
}

/// What follows a wait of rank 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Exit,
    Job,
}

/// Restores the default action of the signals that ask a process to end, if the program handles them. The program has
/// ended.
fn restore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let mut now = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the call only writes the present action, to memory that has its type.
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

/// The most ranks, or ranges of ranks, in a list.
const LISTED: usize = 16;

/// `rank 3`, or `ranks 0-3, 5 and 1 more`. The ranks are in ascending order.
pub fn in_words(ranks: &[usize]) -> String {
    let mut listed = Vec::new();
    let mut rest = ranks;
    while let (Some(first), true) = (rest.first(), listed.len() < LISTED) {
        let follows = |(place, rank): &(usize, &usize)| **rank == first + place;
        let run = rest.iter().enumerate().take_while(follows).count();
        // A range of two would not be shorter.
        let run = if run < 3 { 1 } else { run };
        listed.push(match run {
            1 => first.to_string(),
            _ => format!("{first}-{}", rest[run - 1]),
        });
        rest = &rest[run..];
    }
    let listed = listed.join(", ");
    match (ranks.len(), rest.len()) {
        (1, _) => format!("rank {listed}"),
        (_, 0) => format!("ranks {listed}"),
        (_, more) => format!("ranks {listed} and {more} more"),
    }
}

/// The job that the environment describes.
struct Described {
    /// How many times this process has joined the job.
    generation: u64,
    /// On rank 0: its listening socket.
    listener: Option<TcpListener>,
    /// This process's rank in the last generation.
    last: Weak<RankShared>,
}

static DESCRIBED: Mutex<Described> = Mutex::new(Described {
    generation: 0,
    listener: None,
    last: Weak::new(),
});

/// The right to join the job that the environment describes. One thread at a time has it.
pub(crate) struct Again(MutexGuard<'static, Described>);

impl Again {
    /// Waits until this process is done with the job before, and sets the next generation in `config`.
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
            // The time limit for the others begins now.
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

    /// Notes that the job has begun.
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
        assert_eq!(in_words(&[0, 1, 2, 3, 5, 7, 8, 9]), "ranks 0-3, 5, 7-9");
        let many: Vec<_> = (0..18).map(|rank| 2 * rank).collect();
        let text = in_words(&many);
        assert!(text.ends_with(", 28, 30 and 2 more"), "{text}");
    }

    /// The service may run late on a slow machine. Until it has run, the others do not know why this rank ends.
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
