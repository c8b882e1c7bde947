//! The handshake of a new connection: both ends prove that they belong to the same job.

use crate::secret::{Key, NONCE_LEN, Nonce, TAG_LEN, Tag, random};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"tidegat1";
const GREETING_LEN: usize = MAGIC.len() + NONCE_LEN;
/// Size, rank, generation, host and purpose.
const CLAIMS_LEN: usize = 4 + 4 + 8 + 4 + 1;
pub(crate) const PROOF_LEN: usize = MAGIC.len() + CLAIMS_LEN + NONCE_LEN + TAG_LEN;
const ANSWER_LEN: usize = 1 + TAG_LEN;

/// What a caller sends; its length is [`PROOF_LEN`].
type Proof = ([u8; 8], Claims, Nonce, Tag);

/// How long a caller may take to prove itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted = 0,
    OtherSize = 1,
    NotProved = 2,
    Taken = 3,
    /// The hub is still in the job before the caller's.
    Later = 4,
    /// The caller's job is over.
    Over = 5,
}

/// Why a caller is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it does not speak the protocol of tidegate")]
    Garbled,
    #[error("it thinks that the job has {0} ranks")]
    OtherSize(u32),
    #[error("it does not know the secret of this job")]
    NotProved,
    #[error("rank {0} is taken already, or cannot exist")]
    Taken(usize),
}

/// The result of a successful handshake.
pub(crate) struct Session {
    pub(crate) rank: usize,
    pub(crate) to_rank: Key,
    pub(crate) to_hub: Key,
}

/// A caller's claims about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    #[serde(with = "postcard::fixint::le")]
    pub(crate) size: u32,
    #[serde(with = "postcard::fixint::le")]
    pub(crate) rank: u32,
    #[serde(with = "postcard::fixint::le")]
    pub(crate) generation: u64,
    /// The rank that it calls.
    #[serde(with = "postcard::fixint::le")]
    pub(crate) host: u32,
    pub(crate) purpose: Purpose,
}

/// Why a rank calls another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// It joins the job. It calls rank 0.
    Join,
    /// It wants to be a child of the other one.
    Attach,
    /// It has lost its parent. It calls rank 0.
    Resume,
}

fn encoded(data: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(data).expect("plain data can be encoded")
}

/// The facts of one handshake, as the bytes that are proved.
fn transcript(claims: Claims, hub: &Nonce, caller: &Nonce) -> Vec<u8> {
    encoded(&(MAGIC, claims, hub, caller))
}

fn session(key: &Key, rank: usize, transcript: &[u8]) -> Session {
    Session {
        rank,
        to_rank: key.derive(b"to rank", transcript),
        to_hub: key.derive(b"to hub", transcript),
    }
}

/// A caller at the hub that has proved nothing yet.
pub(crate) struct Caller {
    stream: TcpStream,
    pub(crate) from: SocketAddr,
    pub(crate) since: Instant,
    nonce: Nonce,
    proof: [u8; PROOF_LEN],
    have: usize,
}

/// A caller that has proved to be `session.rank`, and waits for the answer.
pub(crate) struct Proved {
    stream: TcpStream,
    key: Key,
    transcript: Vec<u8>,
    generation: u64,
    /// The rank that it wants to meet.
    pub(crate) host: usize,
    pub(crate) purpose: Purpose,
    pub(crate) from: SocketAddr,
    pub(crate) session: Session,
}

impl Caller {
    /// Greets a new connection.
    pub(crate) fn greet(
        stream: TcpStream,
        from: SocketAddr,
        now: Instant,
    ) -> Result<Self, Refusal> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let nonce: Nonce = random()?;
        let mut greeting = [0; GREETING_LEN];
        greeting[..MAGIC.len()].copy_from_slice(&MAGIC);
        greeting[MAGIC.len()..].copy_from_slice(&nonce);
        // The buffer of a new socket has room for this. If it does not, the connection is not worth waiting for.
        (&stream).write_all(&greeting)?;
        Ok(Self {
            stream,
            from,
            since: now,
            nonce,
            proof: [0; PROOF_LEN],
            have: 0,
        })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads the bytes that have arrived, but none beyond the proof. `Ok(true)`: the proof is complete.
    pub(crate) fn advance(&mut self) -> Result<bool, Refusal> {
        while self.have < PROOF_LEN {
            match self.stream.read(&mut self.proof[self.have..]) {
                Ok(0) => return Err(Refusal::Closed),
                Ok(count) => self.have += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            let magic = self.have.min(MAGIC.len());
            if self.proof[..magic] != MAGIC[..magic] {
                return Err(Refusal::Garbled);
            }
        }
        Ok(self.have == PROOF_LEN)
    }

    /// Checks a complete proof.
    pub(crate) fn check(self, key: &Key, size: usize) -> Result<Proved, Refusal> {
        match check_proof(&self.proof, &self.nonce, key, size) {
            Ok((claims, transcript)) => Ok(Proved {
                session: session(key, claims.rank as usize, &transcript),
                generation: claims.generation,
                host: claims.host as usize,
                purpose: claims.purpose,
                from: self.from,
                stream: self.stream,
                key: key.clone(),
                transcript,
            }),
            Err(refusal) => {
                let answer = match refusal {
                    Refusal::OtherSize(_) => Answer::OtherSize,
                    _ => Answer::NotProved,
                };
                let mut hint = [0; ANSWER_LEN];
                hint[0] = answer as u8;
                let _ = (&self.stream).write(&hint);
                Err(refusal)
            }
        }
    }
}

/// The claims of the sender of `proof`, if they are proved, and the transcript.
pub(crate) fn check_proof(
    proof: &[u8; PROOF_LEN],
    nonce: &Nonce,
    key: &Key,
    size: usize,
) -> Result<(Claims, Vec<u8>), Refusal> {
    let Ok((MAGIC, claims, caller, tag)) = postcard::from_bytes::<Proof>(proof) else {
        return Err(Refusal::Garbled);
    };
    if claims.size as usize != size {
        return Err(Refusal::OtherSize(claims.size));
    }
    let transcript = transcript(claims, nonce, &caller);
    if !key.check(&[b"rank", &transcript], &tag) {
        return Err(Refusal::NotProved);
    }
    Ok((claims, transcript))
}

impl Proved {
    fn answer(&self, answer: Answer) -> io::Result<()> {
        let code = [answer as u8];
        let mut bytes = [0; ANSWER_LEN];
        bytes[0] = code[0];
        bytes[1..].copy_from_slice(&self.key.tag(&[b"hub", &code, &self.transcript]));
        (&self.stream).write_all(&bytes)
    }

    /// Accepts the caller. The stream is in non-blocking mode.
    pub(crate) fn accept(self) -> Result<(TcpStream, Session), Refusal> {
        self.answer(Answer::Accepted)?;
        Ok((self.stream, self.session))
    }

    /// The answer to a caller of another generation than the hub's, which is `generation`.
    pub(crate) fn other_generation(&self, generation: u64) -> Option<Answer> {
        match self.generation.cmp(&generation) {
            std::cmp::Ordering::Less => Some(Answer::Over),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Answer::Later),
        }
    }

    /// Refuses the caller.
    pub(crate) fn refuse(self, answer: Answer) {
        let _ = self.answer(answer);
    }
}

/// Why an attempt to reach the hub failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Attempt {
    /// It should be tried again: rank 0 may not be there yet, or another program may still be at its address.
    #[error("{0}")]
    Again(String),
    /// Rank 0 is still in the job before this one.
    #[error("rank 0 is still in the job before this one")]
    Later,
    /// Rank 0 of this job refused.
    #[error("{0}")]
    Final(String),
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Attempt::Again("it closed the connection".into()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Attempt::Again("it did not answer in time".into())
            }
            _ => Attempt::Again(error.to_string()),
        }
    }
}

/// Proves to the rank at the other end of `stream` which rank this is, and checks that the other one is `claims.host`.
pub(crate) fn call(mut stream: &TcpStream, key: &Key, claims: Claims) -> Result<Session, Attempt> {
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting)?;
    if greeting[..MAGIC.len()] != MAGIC {
        return Err(Attempt::Again(
            "something else than tidegate answers there".into(),
        ));
    }
    let mut hub: Nonce = [0; NONCE_LEN];
    hub.copy_from_slice(&greeting[MAGIC.len()..]);
    let mine: Nonce = random()?;
    let transcript = transcript(claims, &hub, &mine);
    let proof: Proof = (MAGIC, claims, mine, key.tag(&[b"rank", &transcript]));
    stream.write_all(&encoded(&proof))?;

    let mut answer = [0; ANSWER_LEN];
    stream.read_exact(&mut answer)?;
    let proved = key.check(&[b"hub", &answer[..1], &transcript], &answer[1..]);
    match answer[0] {
        code if proved && code == Answer::Accepted as u8 => {
            Ok(session(key, claims.rank as usize, &transcript))
        }
        code if proved && code == Answer::Taken as u8 => {
            let rank = claims.rank;
            Err(Attempt::Final(format!("rank {rank} is taken already")))
        }
        code if proved && code == Answer::Later as u8 => Err(Attempt::Later),
        code if proved && code == Answer::Over as u8 => Err(Attempt::Final(
            "it is in a later job: this process has missed one, or was started again".into(),
        )),
        code if code == Answer::OtherSize as u8 => Err(Attempt::Again(
            "a job with another WORLD_SIZE answers there".into(),
        )),
        code if code == Answer::NotProved as u8 => Err(Attempt::Again(
            "a job with another TIDEGATE_SECRET or TIDEGATE_JOB_ID answers there".into(),
        )),
        _ => Err(Attempt::Again(
            "what answers there does not know the secret of this job".into(),
        )),
    }
}
