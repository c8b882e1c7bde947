//! The input of rank 0, in the agent of its host.

use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;

/// The writing end of rank 0's input, and the bytes that have come for it.
#[derive(Debug)]
pub(super) struct RankInlet {
    pipe: OwnedFd,
    bytes: VecDeque<u8>,
    is_last: bool,
}

impl RankInlet {
    /// Returns the inlet, and the input for rank 0.
    pub(super) fn new() -> io::Result<(Self, Stdio)> {
        let (read, pipe) = io::pipe()?;
        let pipe = OwnedFd::from(pipe);
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let inlet = Self {
            pipe,
            bytes: VecDeque::new(),
            is_last: false,
        };
        Ok((inlet, read.into()))
    }

    /// Takes input from the launcher. No bytes are the end.
    pub(super) fn take(&mut self, bytes: Vec<u8>) {
        self.is_last |= bytes.is_empty();
        self.bytes.extend(bytes);
    }

    /// It is ready when rank 0 has room for input, or reads no more.
    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        (!self.bytes.is_empty()).then(|| self.pipe.as_fd())
    }

    /// Whether all input has been passed on, up to its end.
    pub(super) fn is_over(&self) -> bool {
        self.is_last && self.bytes.is_empty()
    }

    /// Passes on as much input as rank 0 has room for, and returns how much. `None`: rank 0 reads no more.
    pub(super) fn pass_on(&mut self) -> Option<usize> {
        match rustix::io::write(&self.pipe, self.bytes.as_slices().0) {
            Ok(count) => {
                self.bytes.drain(..count);
                Some(count)
            }
            Err(Errno::AGAIN | Errno::INTR) => Some(0),
            Err(_) => None,
        }
    }
}
