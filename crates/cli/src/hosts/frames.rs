//! The messages between the launcher and the agent of a host.
//!
//! # Model
//!
//! The agent begins with a line of [`GREETING`] and its version. The launcher skips everything that a login shell has
//! printed before. Then both sides send frames: the length in four bytes, and a message in postcard's format.

use crate::bind::Bind;
use crate::printer::StdStream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// The beginning of an agent's output.
pub(super) const GREETING: &str = "tidegate node ";

/// The version, which must be the same on both sides, since messages contain no other.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The longest accepted frame.
const LONGEST: usize = 64 << 20;

/// How many bytes of each stream an agent may send before the launcher allows more.
pub(super) const CREDIT: usize = 1 << 20;

/// How many bytes of input the launcher may send before rank 0 has read some.
pub(crate) const INPUT_CREDIT: usize = 64 << 10;

/// One host's part of a job. It contains the secret, and so is not `Debug`.
#[derive(Serialize, Deserialize)]
pub(super) struct HostJob {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) directory: OsString,
    pub(super) envs: Vec<(OsString, OsString)>,
    pub(super) rank_envs: Vec<(usize, OsString, OsString)>,
    /// The number of ranks of the job.
    pub(super) ranks: usize,
    /// The first rank of this host. Its other ranks follow.
    pub(super) first: usize,
    pub(super) here: usize,
    /// The number of this host, and its name.
    pub(super) node: usize,
    pub(super) name: String,
    /// The address at which the other hosts reach the host with rank 0; `None`: there are no other hosts.
    pub(super) address: Option<String>,
    /// On the host with rank 0: the name of another host. Rank 0 uses the address from which it sends to that one.
    pub(super) other: Option<String>,
    pub(super) bind: Bind,
    pub(super) verbose: bool,
    pub(super) is_discarded: bool,
    /// Whether rank 0 gets input from the launcher.
    pub(super) has_input: bool,
    pub(super) secret: String,
}

/// A message from the launcher to an agent.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToHost {
    #[expect(private_interfaces, reason = "only the two ends look into it")]
    Job(Box<HostJob>),
    /// Start the ranks. Rank 0 is at this address.
    Start { host: String, port: u16 },
    /// Signal the process of a rank, or also the programs that it has started.
    Signal {
        rank: usize,
        signal: i32,
        to_all: bool,
    },
    /// The agent may send this much more of a stream.
    Credit { stream: StdStream, bytes: usize },
    /// Input for rank 0. An empty message is its end.
    Input(Vec<u8>),
    /// All ranks of the job have ended.
    Last,
}

/// A message from an agent to the launcher.
#[derive(Serialize, Deserialize)]
pub(crate) enum FromHost {
    /// The ranks can be started. On the host with rank 0, with the port at which it will listen.
    Ready { port: Option<u16> },
    /// A rank was started.
    Started { rank: usize, pid: u32 },
    /// The job cannot be started here.
    Failed { reason: String, code: u8 },
    Output {
        rank: usize,
        stream: StdStream,
        bytes: Vec<u8>,
    },
    /// The stream has ended.
    Closed { rank: usize, stream: StdStream },
    /// Rank 0 has taken this much of its input.
    TookInput { bytes: usize },
    /// Rank 0 reads no more.
    ClosedInput,
    /// A rank has ended, with this status of the system. It has told because of which rank a call of it failed.
    Ended {
        rank: usize,
        status: i32,
        told: Option<usize>,
    },
    /// A message for the user.
    Say(String),
}

/// A message as a frame.
pub(super) fn frame(message: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("a message can be written to memory");
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

/// Bytes that have come, from which messages are taken.
#[derive(Debug, Default)]
pub(super) struct Incoming(Vec<u8>);

impl Incoming {
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the greeting, and everything before it. `None`: it has not come yet.
    pub(super) fn greeting(&mut self) -> Option<String> {
        let mut start = 0;
        while let Some(length) = self.0[start..].iter().position(|byte| *byte == b'\n') {
            let line = &self.0[start..start + length];
            start += length + 1;
            let version = line.strip_prefix(GREETING.as_bytes());
            if let Some(version) = version.and_then(|version| std::str::from_utf8(version).ok()) {
                let version = version.to_owned();
                self.0.drain(..start);
                return Some(version);
            }
        }
        self.0.drain(..start);
        None
    }

    /// The next message. `None`: it has not come yet. An error if the bytes are no message.
    pub(super) fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, String> {
        let Some((length, rest)) = self.0.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(format!("a message of {length} bytes"));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = postcard::from_bytes(body).map_err(|error| error.to_string())?;
        self.0.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_shell_before_the_greeting_is_skipped() {
        let mut incoming = Incoming::default();
        incoming.extend(b"Welcome\xff!\ntidegate");
        assert_eq!(incoming.greeting(), None);
        incoming.extend(b" node 1.2\n\x01");
        assert_eq!(incoming.greeting().as_deref(), Some("1.2"));
        assert_eq!(incoming.0, [1]);
    }

    #[test]
    fn messages_come_in_pieces_of_any_size() {
        let output = |byte| FromHost::Output {
            rank: 3,
            stream: StdStream::Err,
            bytes: vec![byte; 300],
        };
        let all: Vec<u8> = (0..5).flat_map(|byte| frame(&output(byte))).collect();
        for size in [1, 7, 304, all.len()] {
            let mut incoming = Incoming::default();
            let mut seen = Vec::new();
            for piece in all.chunks(size) {
                incoming.extend(piece);
                while let Some(message) = incoming.next::<FromHost>().unwrap() {
                    let FromHost::Output { rank: 3, bytes, .. } = message else {
                        panic!("another message")
                    };
                    seen.push((bytes.len(), bytes[0]));
                }
            }
            let expected: Vec<_> = (0..5).map(|byte| (300, byte)).collect();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        for bad in [&[255u8; 8][..], &[1, 0, 0, 0, 99]] {
            let mut incoming = Incoming::default();
            incoming.extend(bad);
            assert!(incoming.next::<FromHost>().is_err());
        }
    }
}
