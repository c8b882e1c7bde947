//! Passes what one rank prints on, in whole lines.

use super::Output;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A line longer than this is passed on in pieces.
const MAX_LINE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// The reading end of one stream of one rank.
#[derive(Debug)]
pub(crate) struct Source {
    pipe: File,
    stream: Stream,
    /// What is put in front of each line; `None`: everything is kept instead.
    label: Option<Vec<u8>>,
    /// The line that has begun, or everything.
    pub(crate) pending: Vec<u8>,
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Source {
    pub(crate) fn new(
        pipe: OwnedFd,
        stream: Stream,
        rank: usize,
        output: Output,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            pipe: File::from(pipe),
            stream,
            label: match output {
                Output::Labelled => Some(format!("[{rank}] ").into_bytes()),
                Output::Plain => Some(Vec::new()),
                Output::Captured | Output::Inherited | Output::Discarded => None,
            },
            pending: Vec::new(),
        })
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// Reads what there is; `false` at the end of the stream.
    pub(crate) fn read(&mut self) -> bool {
        let mut chunk = [0; 64 << 10];
        // A bounded number of times: the other ranks want their turn.
        for _ in 0..16 {
            match self.pipe.read(&mut chunk) {
                Ok(0) => return false,
                Ok(count) => {
                    self.pending.extend_from_slice(&chunk[..count]);
                    self.pass_on(false);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Passes what is left on, as a line.
    pub(crate) fn finish(&mut self) {
        self.pass_on(true);
    }

    fn pass_on(&mut self, all: bool) {
        let Some(label) = &self.label else { return };
        let whole = match self.pending.iter().rposition(|byte| *byte == b'\n') {
            _ if all || self.pending.len() >= MAX_LINE => self.pending.len(),
            Some(newline) => newline + 1,
            None => return,
        };
        let mut text = Vec::with_capacity(whole + 64);
        for line in self.pending[..whole].split_inclusive(|byte| *byte == b'\n') {
            text.extend_from_slice(label);
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        self.pending.drain(..whole);
        // One write for whole lines, so that lines of ranks do not mix. If nobody reads any more, the ranks
        // should not be stopped by it: the output is lost, as it would be with a closed terminal.
        let _ = match self.stream {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush())
            }
            Stream::Err => io::stderr().lock().write_all(&text),
        };
    }
}
