//! One authenticated connection: frames over a TCP stream that never blocks.
//!
//! # Model
//!
//! A frame is a `u32` length, a message of that many bytes, and a tag. The tag covers the length, the message's digest,
//! and a sequence number that is never sent. A message for many ranks ([`Body`]) is encoded and digested once, and all
//! connections share its bytes. Each direction of each connection has its own key. So a frame that is repeated, left
//! out, reordered, sent back or taken from another connection has a wrong tag. Frames are authenticated and not
//! encrypted, so no secret is ever put into one.
//!
//! # Failure
//!
//! A wrong tag or an impossible length ends the connection, because the borders of later frames are unknown then. The
//! buffer grows with the bytes that arrived, never with a claimed length. Data that a peer does not read is kept up to
//! a limit; beyond it the connection ends.

use crate::hop::{self, Hop};
use crate::secret::{Key, TAG_LEN, Tag};
use crate::wire::{MAX_MESSAGE, Malformed};
use hmac_sha256::Hash;
use rustix::io::{Errno, read};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Bytes of one read.
const CHUNK: usize = 64 << 10;
/// How much is read before other connections get their turn.
const TURN: usize = 16 * CHUNK;
/// The most frames that one call passes to the kernel.
const AT_ONCE: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection was closed, as by a process that was killed or has crashed")]
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

/// An encoded hop, for any number of receivers.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    // A slice would have to be copied.
    bytes: Arc<Vec<u8>>,
    digest: [u8; 32],
}

impl Body {
    pub(crate) fn of(hop: &Hop) -> Self {
        let bytes = hop.encode();
        Self {
            digest: Hash::hash(&bytes),
            bytes: Arc::new(bytes),
        }
    }
}

/// One direction of a connection.
#[derive(Debug)]
struct Direction {
    key: Key,
    sequence: u64,
}

impl Direction {
    fn tag(&self, digest: &[u8]) -> Tag {
        self.key.tag(&[&self.sequence.to_le_bytes(), digest])
    }
}

/// Finds frames in the bytes that arrive.
#[derive(Debug)]
pub(crate) struct Unframer {
    direction: Direction,
    buffer: Vec<u8>,
    /// How many bytes at the front of `buffer` were consumed.
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
        // Consumed bytes are removed before the buffer would grow, so each byte is moved a bounded number of times.
        if self.used > 0 && (self.used == self.buffer.len() || self.used >= CHUNK) {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    pub(crate) fn next(&mut self) -> Result<Option<Hop>, LinkError> {
        if self.used > 0 && self.used == self.buffer.len() {
            // There may be thousands of connections, and most of them are idle.
            (self.buffer, self.used) = (Vec::new(), 0);
        }
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
        let digest = Hash::hash(body);
        if !self.direction.key.check(&[&sequence, &digest], tag) {
            return Err(LinkError::WrongTag);
        }
        let hop = hop::decode(body)?;
        self.direction.sequence += 1;
        self.used += 4 + length + TAG_LEN;
        Ok(Some(hop))
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

    pub(crate) fn frame(&mut self, body: &Body) -> Frame {
        debug_assert!(body.bytes.len() <= MAX_MESSAGE);
        let tag = self.direction.tag(&body.digest);
        self.direction.sequence += 1;
        Frame {
            length: (body.bytes.len() as u32).to_le_bytes(),
            body: Arc::clone(&body.bytes),
            tag,
        }
    }
}

/// A message in the queue of one connection.
#[derive(Debug)]
pub(crate) struct Frame {
    length: [u8; 4],
    body: Arc<Vec<u8>>,
    tag: Tag,
}

impl Frame {
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        [&self.length, &self.body, &self.tag]
    }

    fn len(&self) -> usize {
        self.length.len() + self.body.len() + self.tag.len()
    }
}

/// An authenticated connection over a stream in non-blocking mode.
#[derive(Debug)]
pub(crate) struct Link<S> {
    stream: S,
    framer: Framer,
    unframer: Unframer,
    out: VecDeque<Frame>,
    /// How many bytes of the first frame have been sent.
    sent: usize,
    /// How many bytes are queued in all.
    waiting: usize,
    out_limit: usize,
    /// Why the connection has ended, once that is known. Messages that came before still count.
    end: Option<String>,
    /// Whether anything arrived since this was last cleared.
    pub(crate) heard: bool,
    /// For the owner: how often it looked and nothing had arrived.
    pub(crate) quiet: u32,
}

impl<S: AsFd> Link<S> {
    pub(crate) fn new(stream: S, send: Key, receive: Key, out_limit: usize) -> Self {
        Self {
            stream,
            framer: Framer::new(send),
            unframer: Unframer::new(receive),
            out: VecDeque::new(),
            sent: 0,
            waiting: 0,
            out_limit,
            end: None,
            heard: true,
            quiet: 0,
        }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, body: &Body) -> Result<(), LinkError> {
        if self.waiting > self.out_limit {
            return Err(LinkError::Deaf(self.waiting));
        }
        if self.end.is_none() {
            let frame = self.framer.frame(body);
            self.waiting += frame.len();
            self.out.push_back(frame);
        }
        Ok(())
    }

    /// Notes that the connection has ended.
    pub(crate) fn break_off(&mut self, reason: String) {
        self.end.get_or_insert(reason);
        self.out.clear();
        (self.sent, self.waiting) = (0, 0);
    }

    /// Why the connection has ended, if it has.
    pub(crate) fn end(&self) -> Option<&str> {
        self.end.as_deref()
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Gives the kernel as many bytes as it takes.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        while self.wants_write() {
            let frames = self.out.iter().take(AT_ONCE);
            let mut skip = self.sent;
            let mut slices = Vec::with_capacity(3 * self.out.len().min(AT_ONCE));
            for part in frames.flat_map(Frame::parts) {
                let skipped = skip.min(part.len());
                skip -= skipped;
                slices.push(IoSlice::new(&part[skipped..]));
            }
            // `write_vectored` would raise SIGPIPE, unless the program has switched that off.
            let (flags, mut nothing) = (SendFlags::NOSIGNAL, SendAncillaryBuffer::default());
            match sendmsg(&self.stream, &slices, &mut nothing, flags) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => self.went(count),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(LinkError::Broken(error.into())),
            }
        }
        Ok(())
    }

    /// Removes `count` sent bytes from the queue.
    fn went(&mut self, count: usize) {
        self.waiting -= count;
        self.sent += count;
        while let Some(frame) = self.out.front()
            && self.sent >= frame.len()
        {
            self.sent -= frame.len();
            self.out.pop_front();
        }
        if self.out.is_empty() {
            self.out = VecDeque::new();
        }
    }

    /// Reads what has arrived, at most a turn. Returns an error when the stream has ended; messages before the end are
    /// kept.
    pub(crate) fn fill(&mut self) -> Result<(), LinkError> {
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let mut taken = 0;
        while taken < TURN {
            match read(&self.stream, &mut chunk) {
                Ok(([], _)) => return Err(LinkError::Closed),
                Ok((bytes, _)) => {
                    self.unframer.feed(bytes);
                    self.heard = true;
                    taken += bytes.len();
                    // The kernel had no more. If more has come since, it says so again.
                    if bytes.len() < CHUNK {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(LinkError::Broken(error.into())),
            }
        }
        Ok(())
    }

    /// The next message that has arrived in full.
    pub(crate) fn next(&mut self) -> Result<Option<Hop>, LinkError> {
        self.unframer.next()
    }
}
