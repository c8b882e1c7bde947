//! One authenticated connection: frames over a TCP stream that never blocks.
//!
//! # Model
//!
//! A frame is a `u32` length, that many bytes of one message, and a tag over the length, the message and a sequence
//! number that is never sent. Each direction of each connection has its own key, so a frame that is repeated, left
//! out, reordered, sent back or taken from another connection has a wrong tag. Frames are authenticated, not
//! encrypted: nothing secret is ever put into one.
//!
//! # Failure
//!
//! A wrong tag or an impossible length ends the connection: after it the stream has no borders any more. The
//! buffer grows with what arrived, never with what a length claims. What a peer does not read is kept up to a
//! bound; beyond it the connection ends.

use crate::secret::{Key, TAG_LEN};
use crate::wire::{self, MAX_MESSAGE, Malformed, Message};
use std::io::{self, ErrorKind, Read, Write};

/// One read from the kernel.
const CHUNK: usize = 64 << 10;
/// How much is read before other connections get their turn.
const TURN: usize = 16 * CHUNK;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection was closed")]
    Closed,
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    #[error("a frame claims {0} bytes")]
    Oversized(usize),
    #[error("a frame has a wrong tag")]
    WrongTag,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("{0} bytes wait for it, and it does not read")]
    Deaf(usize),
}

/// One direction of a connection.
#[derive(Debug)]
struct Direction {
    key: Key,
    sequence: u64,
}

impl Direction {
    fn tag(&self, body: &[u8]) -> [u8; TAG_LEN] {
        self.key.tag(&[&self.sequence.to_le_bytes(), body])
    }
}

/// Finds frames in what arrives.
#[derive(Debug)]
pub(crate) struct Unframer {
    direction: Direction,
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that were consumed.
    used: usize,
}

impl Unframer {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            direction: Direction { key, sequence: 0 },
            buffer: Vec::new(),
            used: 0,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        // Consumed bytes go before the buffer would grow, so that each byte is moved a bounded number of times.
        if self.used > 0 && (self.used == self.buffer.len() || self.used >= CHUNK) {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    pub(crate) fn next(&mut self) -> Result<Option<Message>, LinkError> {
        let waiting = &self.buffer[self.used..];
        let Some((length, rest)) = waiting.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_MESSAGE {
            return Err(LinkError::Oversized(length));
        }
        let (Some(body), Some(tag)) = (rest.get(..length), rest.get(length..length + TAG_LEN))
        else {
            return Ok(None);
        };
        let sequence = self.direction.sequence.to_le_bytes();
        if !self.direction.key.check(&[&sequence, body], tag) {
            return Err(LinkError::WrongTag);
        }
        let message = wire::decode(body)?;
        self.direction.sequence += 1;
        self.used += 4 + length + TAG_LEN;
        Ok(Some(message))
    }
}

/// Makes frames.
#[derive(Debug)]
pub(crate) struct Framer {
    direction: Direction,
}

impl Framer {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            direction: Direction { key, sequence: 0 },
        }
    }

    /// Appends the frame of an encoded message to `out`.
    pub(crate) fn frame(&mut self, body: &[u8], out: &mut Vec<u8>) {
        debug_assert!(body.len() <= MAX_MESSAGE);
        let tag = self.direction.tag(body);
        self.direction.sequence += 1;
        out.reserve(4 + body.len() + TAG_LEN);
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(&tag);
    }
}

/// An authenticated connection over a stream in non-blocking mode.
#[derive(Debug)]
pub(crate) struct Link<S> {
    stream: S,
    framer: Framer,
    unframer: Unframer,
    out: Vec<u8>,
    sent: usize,
    out_limit: usize,
    /// Whether anything arrived since this was last cleared.
    pub(crate) heard: bool,
    /// For the owner: how often it looked in vain for something heard.
    pub(crate) quiet: u32,
}

impl<S: Read + Write> Link<S> {
    pub(crate) fn new(stream: S, send: Key, receive: Key, out_limit: usize) -> Self {
        Self {
            stream,
            framer: Framer::new(send),
            unframer: Unframer::new(receive),
            out: Vec::new(),
            sent: 0,
            out_limit,
            heard: true,
            quiet: 0,
        }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Queues an encoded message.
    pub(crate) fn push(&mut self, body: &[u8]) -> Result<(), LinkError> {
        if self.out.len() - self.sent > self.out_limit {
            return Err(LinkError::Deaf(self.out.len() - self.sent));
        }
        self.framer.frame(body, &mut self.out);
        Ok(())
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Gives the kernel as much as it takes.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        while self.wants_write() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Broken(error)),
            }
        }
        if !self.wants_write() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent >= TURN {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Takes what arrived, up to a turn. `Err` when the stream has ended; messages before the end are kept.
    pub(crate) fn fill(&mut self) -> Result<(), LinkError> {
        let mut chunk = [0; CHUNK];
        let mut taken = 0;
        while taken < TURN {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => {
                    self.unframer.feed(&chunk[..count]);
                    self.heard = true;
                    taken += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Broken(error)),
            }
        }
        Ok(())
    }

    /// The next message that has arrived in full.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, LinkError> {
        self.unframer.next()
    }
}
