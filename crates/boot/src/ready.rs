//! Waiting for many descriptors at once.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
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

/// Sockets that may be thousands. Asking which of them can be read takes as long as the answer is, however many there
/// are. It can be waited for like one descriptor.
#[derive(Debug)]
pub(crate) struct Crowd(OwnedFd);

/// How many sockets one answer names. The others are named in the next ones.
const AT_ONCE: usize = 256;

impl Crowd {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Self)
    }

    pub(crate) fn add(&self, fd: impl AsFd, number: usize) -> rustix::io::Result<()> {
        let number = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.0, fd, number, epoll::EventFlags::IN)
    }

    /// Has to be called before a socket is closed. Otherwise the kernel would go on to report it, if a forked child
    /// has it, too.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// The numbers of sockets that can be read, or have ended.
    pub(crate) fn readable(&self) -> Vec<usize> {
        let mut events = [MaybeUninit::uninit(); AT_ONCE];
        let at_once = Timespec::default();
        // If it fails, the next answer has them.
        let found = epoll::wait(&self.0, &mut events, Some(&at_once));
        let (found, _) = found.unwrap_or_default();
        found
            .iter()
            .map(|event| event.data.u64() as usize)
            .collect()
    }
}

impl AsFd for Crowd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The time until then, rounded up. Otherwise a loop would spin until the moment has come.
pub(crate) fn timeout_until(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(Instant::now());
    Timespec::try_from(left + Duration::from_micros(500)).expect("instants are not that far apart")
}
