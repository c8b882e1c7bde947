//! The reading end of one stream of one rank.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// So much is read at a time.
const PIECE: usize = 64 << 10;

/// One stream of the output of a rank.
#[derive(Debug)]
pub(crate) struct RankPipe {
    pipe: File,
    /// How much more is read; `None`: what comes.
    left: Option<usize>,
}

impl AsFd for RankPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl RankPipe {
    pub(crate) fn new(pipe: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let pipe = File::from(pipe);
        Ok(Self { pipe, left: None })
    }

    /// From now on only the bytes that are in the pipe are read, and none that come later. Returns their
    /// number.
    pub(crate) fn take_last(&mut self) -> usize {
        let in_pipe = || rustix::io::ioctl_fionread(&self.pipe).map_or(0, |left| left as usize);
        *self.left.get_or_insert_with(in_pipe)
    }

    /// Whether it is read to a limit.
    pub(crate) fn is_ending(&self) -> bool {
        self.left.is_some()
    }

    /// Reads up to `most` bytes, which are more than none. Returns no bytes if there are none yet, `None` at the end.
    pub(crate) fn read(&mut self, most: usize) -> Option<Vec<u8>> {
        let most = most.min(PIECE).min(self.left.unwrap_or(PIECE));
        let mut bytes = vec![0; most];
        loop {
            match self.pipe.read(&mut bytes) {
                // Or nothing is left of what was to be read.
                Ok(0) => return None,
                Ok(count) => {
                    bytes.truncate(count);
                    self.left = self.left.map(|left| left - count);
                    return Some(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(Vec::new()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}
