//! PMI-1: the protocol behind `PMI_FD` or `PMI_PORT`, which MPICH's launcher (Hydra), its relatives, and Slurm speak.
//!
//! # Model
//!
//! Requests and answers are lines: `cmd=put kvsname=… key=… value=…`. A barrier is the fence. The rank of this process
//! is in the environment, or is the first message over a `PMI_PORT`. Such servers also speak [version 2](super::pmi2)
//! if they are greeted in it. A server that does not speak version 1 is greeted in version 2.
//!
//! # Failure
//!
//! A wrong answer, a refusal, or no answer is a [`StoreError`].

use super::environment::{Server, Started};
use super::meeting::{self, Found};
use super::pmi2::Pmi2;
use super::read::{self, PmiAnswer};
use super::store::{Store, StoreError};
use super::talk::Talk;
use crate::config::Config;
use crate::error::BootError;
use crate::inherit::{duplicate, is_inherited};
use rustix::net::{SocketType, getpeername, sockopt};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Instant;
use tidegate_ffi::resident::{self, Mpi};

/// Connects to the server, and meets the others there.
pub(crate) fn found(
    server: &Server,
    version: Option<u32>,
    started: &Started,
    settings: &Config,
    began: Instant,
) -> Result<Found, BootError> {
    let deadline = began + settings.timeout;
    let store = open(server, deadline)
        .and_then(|fd| greet(Talk::new(fd, deadline), server, version, started));
    let store = store.map_err(|error| error.of(started.by, "greeting its server", began))?;
    meeting::hold(store, started, began)
}

/// A descriptor of our own for the connection.
fn open(server: &Server, deadline: Instant) -> Result<OwnedFd, StoreError> {
    let number = match server {
        Server::Fd(number) => *number,
        Server::Port { address, .. } => return connect(address, deadline),
    };
    let wrong = |why: &str| StoreError::Garbled(format!("PMI_FD={number} is {why}"));
    if resident::mpi() == Mpi::Over {
        return Err(wrong("closed: MPI has been finalised in this process"));
    }
    // The number itself stays as it is: it belongs to the launcher, and MPI may use it.
    let own = match duplicate(number) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Err(wrong("not open")),
        own => own?,
    };
    let is_stream = sockopt::socket_type(&own) == Ok(SocketType::STREAM);
    if !is_stream || getpeername(&own).is_err() {
        return Err(wrong("no connection"));
    }
    // MPI may change the descriptor when it starts. Before that, it is as the process got it.
    if resident::mpi() != Mpi::Running && !is_inherited(number)? {
        return Err(wrong(
            "a connection that this program has opened itself: a launcher's is open across exec",
        ));
    }
    Ok(own)
}

fn connect(address: &str, deadline: Instant) -> Result<OwnedFd, StoreError> {
    let mut last = StoreError::Garbled("PMI_PORT has no address".into());
    for address in address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StoreError::Silent);
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Agrees with the server on a version.
fn greet(
    mut talk: Talk,
    server: &Server,
    version: Option<u32>,
    started: &Started,
) -> Result<Box<dyn Store>, StoreError> {
    let mut place = started.rank.zip(started.size);
    if let Server::Port { id, .. } = server {
        place = Some(introduce(&mut talk, id)?);
    }
    let place =
        place.ok_or_else(|| StoreError::Garbled("PMI_RANK and PMI_SIZE are not set".into()))?;
    if version != Some(2) && init(&mut talk, 1, 1)? {
        return Ok(Box::new(Pmi1::start(talk, place)?));
    }
    if !init(&mut talk, 2, 0)? {
        let why = "it speaks neither version of PMI that this program does";
        return Err(StoreError::Garbled(why.into()));
    }
    Ok(Box::new(Pmi2::start(talk, place)?))
}

/// Names this process, over a connection that the server does not know yet. The server answers with the rank and the
/// number of ranks.
fn introduce(talk: &mut Talk, id: &str) -> Result<(usize, usize), StoreError> {
    let answer = request(talk, &format!("cmd=initack pmiid={id}"), "initack")?;
    answer.accepted()?;
    let (mut rank, mut size) = (None, None);
    // The answers are the size, the rank, and whether to be verbose.
    for _ in 0..3 {
        let set = expected(talk.hear(read::line)?, "set")?;
        let number = |name| set.get(name).and_then(|value| value.parse().ok());
        size = size.or(number("size"));
        rank = rank.or(number("rank"));
    }
    let why = "it does not say which rank this is";
    rank.zip(size)
        .ok_or_else(|| StoreError::Garbled(why.into()))
}

/// Whether the server accepts this version.
fn init(talk: &mut Talk, version: u32, subversion: u32) -> Result<bool, StoreError> {
    let ask = format!("cmd=init pmi_version={version} pmi_subversion={subversion}");
    let answer = request(talk, &ask, "response_to_init")?;
    let same = answer
        .get("pmi_version")
        .is_none_or(|found| found == version.to_string());
    Ok(same && answer.accepted().is_ok())
}

fn expected(answer: PmiAnswer, command: &str) -> Result<PmiAnswer, StoreError> {
    if answer.command() == command {
        Ok(answer)
    } else {
        let found = answer.command();
        let why = format!("it says `{found}` where `{command}` should come");
        Err(StoreError::Garbled(why))
    }
}

fn request(talk: &mut Talk, ask: &str, command: &str) -> Result<PmiAnswer, StoreError> {
    talk.say(format!("{ask}\n").as_bytes())?;
    expected(talk.hear(read::line)?, command)
}

#[derive(Debug)]
struct Pmi1 {
    talk: Talk,
    place: (usize, usize),
    kvs: String,
    key_room: usize,
    room: usize,
}

impl Pmi1 {
    fn start(mut talk: Talk, place: (usize, usize)) -> Result<Self, StoreError> {
        let maxes = request(&mut talk, "cmd=get_maxes", "maxes")?;
        maxes.accepted()?;
        // Some servers count the NUL at the end of a string.
        let (key_room, room) = (maxes.number("keylen_max")?, maxes.number("vallen_max")?);
        let (key_room, room) = (key_room.saturating_sub(1), room.saturating_sub(1));
        let answer = request(&mut talk, "cmd=get_my_kvsname", "my_kvsname")?;
        answer.accepted()?;
        let kvs = answer.get("kvsname").unwrap_or_default().to_owned();
        if kvs.is_empty() {
            return Err(StoreError::Garbled("its store has no name".into()));
        }
        Ok(Self {
            talk,
            place,
            kvs,
            key_room,
            room,
        })
    }

    fn check_key(&self, key: &str) -> Result<(), StoreError> {
        if key.len() <= self.key_room {
            Ok(())
        } else {
            let room = self.key_room;
            let why = format!("it has room for {room} bytes a key, and `{key}` is longer");
            Err(StoreError::Refused(why))
        }
    }
}

impl Store for Pmi1 {
    fn place(&self) -> (usize, usize) {
        self.place
    }

    fn room(&self) -> usize {
        self.room
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        self.check_key(key)?;
        let ask = format!("cmd=put kvsname={} key={key} value={value}", self.kvs);
        request(&mut self.talk, &ask, "put_result")?.accepted()
    }

    fn fence(&mut self) -> Result<(), StoreError> {
        request(&mut self.talk, "cmd=barrier_in", "barrier_out")?.accepted()
    }

    fn get(&mut self, key: &str) -> Result<String, StoreError> {
        self.check_key(key)?;
        let ask = format!("cmd=get kvsname={} key={key}", self.kvs);
        let answer = request(&mut self.talk, &ask, "get_result")?;
        answer.accepted()?;
        answer.value()
    }

    fn leave(&mut self, deadline: Instant) -> Result<(), StoreError> {
        self.talk.set_deadline(deadline);
        request(&mut self.talk, "cmd=finalize", "finalize_ack")?.accepted()
    }
}

#[cfg(test)]
#[path = "pmi_tests.rs"]
mod tests;
