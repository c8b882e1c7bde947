//! The messages between the launcher and the agent of a host.
//!
//! # Model
//!
//! The agent begins with a line of [`GREETING`] and its version; the launcher skips whatever a login shell has printed before.
//! Then both sides send frames: the length in four bytes, and a message in postcard's format.

use crate::bind::Bind;
use crate::printer::StdStream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// Begins what an agent says.
pub(super) const GREETING: &str = "tidegate node ";

/// The version that both sides must have: messages have no other.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The longest frame that is believed.
const LONGEST: usize = 64 << 20;

/// How much of each stream an agent may send before the launcher gives it more.
pub(super) const CREDIT: usize = 1 << 20;

/// How much input the launcher may send for rank 0 before the rank has read some.
pub(crate) const INPUT_CREDIT: usize = 64 << 10;

/// The part of a job that one host has. It has the secret, and so is not `Debug`.
#[derive(Serialize, Deserialize)]
pub(super) struct HostJob {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) directory: OsString,
    pub(super) envs: Vec<(OsString, OsString)>,
    pub(super) rank_envs: Vec<(usize, OsString, OsString)>,
    /// How many ranks the job has.
    pub(super) ranks: usize,
    /// The first rank of this host, and how many it has.
    pub(super) first: usize,
    pub(super) here: usize,
    /// The number of this host, and its name.
    pub(super) node: usize,
    pub(super) name: String,
    /// At which address the host with rank 0 is reached by the others; `None`: there are no others.
    pub(super) address: Option<String>,
    /// On the host with rank 0: the name of another host, towards which its own address is.
    pub(super) other: Option<String>,
    pub(super) bind: Bind,
    pub(super) verbose: bool,
    pub(super) is_discarded: bool,
    /// Whether rank 0 reads what the launcher sends.
    pub(super) has_input: bool,
    pub(super) secret: String,
}

/// A message from the launcher to an agent.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToHost {
    #[expect(private_interfaces, reason = "only the two ends look into it")]
    Job(Box<HostJob>),
    /// Start the ranks; rank 0 is there.
    Start { host: String, port: u16 },
    /// To the process of a rank, or to what it has started, too.
    Signal {
        rank: usize,
        signal: i32,
        to_all: bool,
    },
    /// So much more of a stream may be sent.
    Credit { stream: StdStream, bytes: usize },
    /// Input for rank 0; no bytes are its end.
    Input(Vec<u8>),
    /// All ranks of the job have ended.
    Last,
}

/// A message from an agent to the launcher.
#[derive(Serialize, Deserialize)]
pub(crate) enum FromHost {
    /// The ranks can be started. On the host with rank 0: it will listen at this port.
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
    /// There will be no more of this.
    Closed { rank: usize, stream: StdStream },
    /// Rank 0 has taken so much of what it is to read.
    TookInput { bytes: usize },
    /// Rank 0 reads no more.
    ClosedInput,
    /// A rank has ended, with a status as the system has it.
    Ended { rank: usize, status: i32 },
    /// Something that the user should read.
    Say(String),
}

/// A message as it goes over the connection.
pub(super) fn frame(message: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("a message can be written to memory");
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

/// Bytes that have come, and what they say.
#[derive(Debug, Default)]
pub(super) struct Incoming(Vec<u8>);

impl Incoming {
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the greeting, and what comes before it; `None`: it has not come yet.
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

    /// The next message; `None`: it has not come yet. An error if the other side speaks otherwise.
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
    fn what_a_shell_prints_before_the_greeting_is_skipped() {
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
    fn what_is_no_message_is_an_error() {
        for bad in [&[255u8; 8][..], &[1, 0, 0, 0, 99]] {
            let mut incoming = Incoming::default();
            incoming.extend(bad);
            assert!(incoming.next::<FromHost>().is_err());
        }
    }
}
