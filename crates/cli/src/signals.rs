//! The signals that a launcher inherits ignored or blocked, for example from a daemon, from `nohup`, or from a
//! background shell.
//!
//! # Model
//!
//! - *SIGCHLD is ignored*: the kernel would discard the ranks' statuses. So the signal gets its default action, here
//!   and in the ranks.
//! - *SIGXFSZ is not ignored*: a handler keeps it from ending the launcher.
//! - *Another signal is ignored*: it stays ignored, here and in the ranks. `nohup` applies to the whole job.
//! - *A signal is blocked*: if it is passed on, it is unblocked in the thread that listens to it. Ranks begin with no
//!   signal blocked.
//! - *No job listens any more*: a signal that had its default action has it again. signal-hook keeps its handler for
//!   ever, so an action that is registered once ends the process ([`IDLE`]).

use super::error::LaunchError;
use rustix::process::Signal;
use signal_hook::SigId;
use signal_hook::flag::register_conditional_default;
use signal_hook::low_level::pipe;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_hal::lock;

const FORWARDED: [Signal; 5] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

/// Whether no job listens to a signal of [`FORWARDED`]. Then it has its default action.
static IDLE: [AtomicBool; FORWARDED.len()] = [const { AtomicBool::new(true) }; FORWARDED.len()];
static LISTENERS: [Mutex<Listeners>; FORWARDED.len()] = [const {
    Mutex::new(Listeners {
        count: 0,
        has_default: false,
    })
}; FORWARDED.len()];

/// The jobs of this process that listen to one signal.
struct Listeners {
    count: usize,
    /// Whether the default action is registered for the time when no job listens.
    has_default: bool,
}

/// A signal of this process that is passed on.
pub(super) struct Forwarded {
    pub(super) signal: Signal,
    /// Its place in [`FORWARDED`].
    index: usize,
    pipe: UnixStream,
    id: SigId,
}

impl Forwarded {
    /// Takes over all signals that are passed on, except for those that this process ignores.
    pub(super) fn listen() -> Result<Vec<Self>, LaunchError> {
        let heard = FORWARDED.into_iter().enumerate();
        let heard = heard.filter(|(_, signal)| !is_ignored(*signal));
        heard
            .map(|(index, signal)| Self::of(index, signal))
            .collect::<Result<_, _>>()
            .map_err(|error| LaunchError::io("listening to signals", error))
    }

    fn of(index: usize, signal: Signal) -> std::io::Result<Self> {
        unblock(signal);
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let mut listeners = lock(&LISTENERS[index]);
        // A handler that the program has set itself stays, and there is no other action.
        if !listeners.has_default && action(signal).sa_sigaction == libc::SIG_DFL {
            register_conditional_default(signal.as_raw(), &IDLE[index])?;
            listeners.has_default = true;
        }
        let id = pipe::register(signal.as_raw(), write)?;
        listeners.count += 1;
        // This comes last: a signal before it ends the process, as before the job, and none is missed.
        IDLE[index].store(false, Ordering::SeqCst);
        Ok(Self {
            signal,
            index,
            pipe,
            id,
        })
    }

    /// Empties the descriptor, so that the next signal makes it ready again.
    pub(super) fn hear(&self) {
        let _ = (&self.pipe).read(&mut [0; 64]);
    }
}

impl AsFd for Forwarded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        let mut listeners = lock(&LISTENERS[self.index]);
        listeners.count -= 1;
        // This comes first, so that no signal is missed.
        IDLE[self.index].store(listeners.count == 0, Ordering::SeqCst);
        signal_hook::low_level::unregister(self.id);
    }
}

/// Makes the kernel keep the statuses of children until they are asked for.
pub(super) fn keep_ends_of_children() {
    let found = action(Signal::CHILD);
    if found.sa_sigaction == libc::SIG_IGN || found.sa_flags & libc::SA_NOCLDWAIT != 0 {
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Lets this process go on when a file that it writes (such as its output) reaches RLIMIT_FSIZE. Then the write fails,
/// and the process does not end. Ranks have the default action, since `exec` resets a handler.
pub(super) fn survive_file_limits() {
    if !is_ignored(Signal::XFSZ) {
        // It fails only for signals that cannot be handled, and this one can.
        let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
    }
}

/// Whether this process ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    action(signal).sa_sigaction == libc::SIG_IGN
}

fn action(signal: Signal) -> libc::sigaction {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer changes nothing, and `found` has room for what is written there.
    unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), found.as_mut_ptr()) };
    // SAFETY: all of it is plain numbers (and an optional function), for which zeros are a value.
    unsafe { found.assume_init() }
}

/// Lets this thread receive a signal.
fn unblock(signal: Signal) {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigemptyset` initialises the set, which the other calls only read or add to; a null pointer asks for no
    // old mask.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
