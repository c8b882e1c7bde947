//! A connection to a PMI server, on which every operation has a deadline.
//!
//! # Model
//!
//! The server answers each request once, and sends nothing else. So bytes beyond an answer are an error. MPI in this
//! process may use the same connection before and after, and no answer to MPI is ever read here.
//!
//! The mode of the descriptor is shared, so it is not changed. Each call asks by itself not to block.
//!
//! # Failure
//!
//! It is a [`StoreError`] if the server closes the connection, is silent until the deadline, or sends more than any
//! answer can be.

use super::store::StoreError;
use crate::ready::timeout_until;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The longest answer.
const LONGEST: usize = 80 << 10;

#[derive(Debug)]
pub(crate) struct Talk {
    fd: OwnedFd,
    deadline: Instant,
    got: Vec<u8>,
}

impl Talk {
    pub(crate) fn new(fd: OwnedFd, deadline: Instant) -> Self {
        Self {
            fd,
            deadline,
            got: Vec::new(),
        }
    }

    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn wait(&self, flags: PollFlags) -> Result<(), StoreError> {
        loop {
            if Instant::now() >= self.deadline {
                return Err(StoreError::Silent);
            }
            let timeout = timeout_until(self.deadline);
            match poll(&mut [PollFd::new(&self.fd, flags)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends all bytes.
    pub(crate) fn say(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        if !self.got.is_empty() {
            return Err(StoreError::Garbled("it says more than it was asked".into()));
        }
        while !bytes.is_empty() {
            match send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(StoreError::Closed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for one answer. `take` returns the answer and its length, or `None` if it is not complete yet.
    pub(crate) fn hear<T>(
        &mut self,
        take: impl Fn(&[u8]) -> Result<Option<(usize, T)>, String>,
    ) -> Result<T, StoreError> {
        loop {
            if let Some((used, answer)) = take(&self.got).map_err(StoreError::Garbled)? {
                self.got.drain(..used);
                return Ok(answer);
            }
            if self.got.len() > LONGEST {
                return Err(StoreError::Garbled("its answer has no end".into()));
            }
            let mut piece = [0; 4096];
            match recv(&self.fd, &mut piece[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(StoreError::Closed),
                Ok((count, _)) => self.got.extend_from_slice(&piece[..count]),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
