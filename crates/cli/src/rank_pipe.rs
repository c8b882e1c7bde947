//! The reading end of one stream of one rank.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// The numbers below `count`, from `first` on. Pipes are served in this order, each time from behind the one that was
/// served last. Otherwise ranks that print much would leave no room to others.
pub(crate) fn in_turn(count: usize, first: usize) -> impl Iterator<Item = usize> {
    let first = first.min(count);
    (first..count).chain(0..first)
}

/// One stream of the output of a rank.
#[derive(Debug)]
pub(crate) struct RankPipe {
    pipe: File,
    /// How much more is read. `None`: everything that comes.
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

    /// From now on, reads only the bytes that are in the pipe already. Returns their number.
    pub(crate) fn take_last(&mut self) -> usize {
        let in_pipe = || rustix::io::ioctl_fionread(&self.pipe).map_or(0, |left| left as usize);
        *self.left.get_or_insert_with(in_pipe)
    }

    /// Whether it is read up to a limit.
    pub(crate) fn is_ending(&self) -> bool {
        self.left.is_some()
    }

    /// Reads at most `most` bytes, which must not be 0. Returns no bytes if none have come yet, and `None` at the end.
    pub(crate) fn read(&mut self, most: usize) -> Option<Vec<u8>> {
        let most = most.min(PIECE).min(self.left.unwrap_or(PIECE));
        let mut bytes = vec![0; most];
        loop {
            match self.pipe.read(&mut bytes) {
                // Or the limit is reached.
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
