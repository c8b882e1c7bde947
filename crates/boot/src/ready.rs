//! Waiting for many descriptors at once.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Descriptors to wait for, each with a token that says what it stands for.
pub struct Awaited<'a, T> {
    fds: Vec<PollFd<'a>>,
    tokens: Vec<T>,
}

impl<T> Default for Awaited<'_, T> {
    fn default() -> Self {
        Self {
            fds: Vec::new(),
            tokens: Vec::new(),
        }
    }
}

impl<'a, T> Awaited<'a, T> {
    /// Waits for this one, too.
    pub fn add(&mut self, token: T, fd: BorrowedFd<'a>, flags: PollFlags) {
        self.fds.push(PollFd::from_borrowed_fd(fd, flags));
        self.tokens.push(token);
    }

    /// Waits until a descriptor is ready, `until` has come, or a signal was handled. Returns the token and the state of
    /// each that is ready.
    pub fn wait(mut self, until: Option<Instant>) -> rustix::io::Result<Vec<(T, PollFlags)>> {
        let timeout = until.map(timeout_until);
        match poll(&mut self.fds, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        let all = self.tokens.into_iter().zip(&self.fds);
        let all = all.map(|(token, fd)| (token, fd.revents()));
        Ok(all.filter(|(_, state)| !state.is_empty()).collect())
    }
}

/// The time until then, rounded up. Otherwise a loop would spin until the moment has come.
pub(crate) fn timeout_until(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(Instant::now());
    Timespec::try_from(left + Duration::from_micros(500)).expect("instants are not that far apart")
}
