//! The sender's side of a door.

use super::{
    Parcel, ToGuest, ToHost, YOUNG, address, decoded, hear, hello, is_proof, say, socket,
    would_block,
};
use crate::secret::{Key, Nonce};
use crate::wire::DoorName;
use rustix::io::Errno;
use rustix::net::{connect, sockopt};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tidegate_hal::limits::WithLimit;
use tidegate_hal::tell;

/// How long a rank tries while the host's queue is full.
const CROWDED: Duration = Duration::from_secs(60);

/// A connection to the door of another rank.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) to: usize,
    fd: OwnedFd,
    key: Key,
    name: DoorName,
    me: usize,
    begun: Instant,
    /// When the connection was made. `None`: the host's queue was full so far.
    since: Option<Instant>,
    /// What the host has to prove, until it has.
    nonce: Option<Nonce>,
    out: VecDeque<Parcel>,
    /// The kernel holds too many descriptors in flight, so sending must be tried again soon.
    throttled: bool,
    /// The host wants this connection to be closed.
    leaves: bool,
    /// Whether something can be read.
    pub(crate) can_read: bool,
}

/// What has become of a visit.
#[derive(Debug)]
pub(crate) enum Step {
    /// It goes on.
    Stays,
    /// It was closed in good order, and nothing is left to be sent.
    Over,
    /// It has failed, for this reason. These rounds' parcels are lost.
    Failed(String, Vec<u64>),
}

/// Why a visit has failed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{} (is TIDEGATE_NODE the same on different hosts?)", WithLimit(.0))]
    Io(#[from] io::Error),
    #[error("that one has no room for a connection: {0}")]
    NoRoom(String),
    #[error("{0}")]
    NotMet(&'static str),
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        Trouble::Io(error.into())
    }
}

impl AsFd for Visit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Visit {
    /// Begins to connect. The error is a text for people.
    pub(crate) fn start(key: Key, name: DoorName, me: usize, to: usize) -> Result<Self, String> {
        Self::open(key, name, me, to).map_err(|error| refused(me, to, error))
    }

    fn open(key: Key, name: DoorName, me: usize, to: usize) -> Result<Self, Trouble> {
        let mut visit = Self {
            to,
            fd: socket()?,
            key,
            name,
            me,
            begun: Instant::now(),
            since: None,
            nonce: None,
            out: VecDeque::new(),
            throttled: false,
            leaves: false,
            can_read: false,
        };
        visit.connect()?;
        Ok(visit)
    }

    /// Connects, if the host's queue has room.
    fn connect(&mut self) -> Result<(), Trouble> {
        let address = address(&self.name)?;
        match rustix::io::retry_on_intr(|| connect(&self.fd, &address)) {
            Ok(()) => {}
            Err(Errno::AGAIN) if self.begun.elapsed() < CROWDED => return Ok(()),
            Err(Errno::AGAIN) => {
                return Err(Trouble::NotMet(
                    "it has let nobody in for a minute: is it stopped?",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        self.since = Some(Instant::now());
        let owner = sockopt::socket_peercred(&self.fd)?;
        if owner.uid != rustix::process::geteuid() {
            return Err(Trouble::NotMet("its door belongs to another user"));
        }
        let (hello, nonce) = hello(&self.key, &self.name, self.me)?;
        self.nonce = Some(nonce);
        // A host without room may have answered and closed already. Reading finds that, and any other end.
        let _ = say(&self.fd, &hello, &[]);
        Ok(())
    }

    /// Whether the kernel has taken the connection. Only then can something be waited for.
    pub(crate) fn is_connected(&self) -> bool {
        self.since.is_some()
    }

    fn is_welcome(&self) -> bool {
        self.is_connected() && self.nonce.is_none()
    }

    /// Whether it may send this parcel, too.
    pub(crate) fn takes_more(&self) -> bool {
        !self.leaves
    }

    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.out.push_back(parcel);
    }

    /// Whether it is only kept for later parcels.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_welcome() && self.out.is_empty()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.is_welcome() && !self.out.is_empty() && !self.throttled
    }

    /// Whether there may be something to do.
    pub(crate) fn can_go_on(&self) -> bool {
        self.can_read || self.wants_write() || self.needs_time()
    }

    /// Whether nothing can be waited for, but it should go on soon.
    pub(crate) fn needs_time(&self) -> bool {
        !self.is_connected() || self.throttled
    }

    /// Takes the next steps. `sent` is called for the round of each parcel that is with the host.
    pub(crate) fn advance(&mut self, mut sent: impl FnMut(u64)) -> Step {
        match self.step(&mut sent) {
            Ok(stays) if stays => Step::Stays,
            Ok(_) => Step::Over,
            Err(error) => {
                if let Some(again) = self.again(&error) {
                    let out = std::mem::take(&mut self.out);
                    *self = Self { out, ..again };
                    return Step::Stays;
                }
                let rounds = self.out.drain(..).map(|parcel| parcel.round).collect();
                Step::Failed(refused(self.me, self.to, error), rounds)
            }
        }
    }

    fn step(&mut self, sent: &mut impl FnMut(u64)) -> Result<bool, Trouble> {
        if !self.is_connected() {
            self.connect()?;
        }
        if !self.is_connected() {
            return Ok(true);
        }
        self.can_read = false;
        loop {
            match hear(&self.fd) {
                Ok(None) => break,
                Ok(Some((bytes, _))) => self.heed(&bytes)?,
                // Nothing is lost if a host that is gone was needed for nothing more.
                Err(_) if self.is_idle() => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        if self.is_welcome() {
            self.flush(sent)?;
        }
        Ok(!(self.leaves && self.out.is_empty()))
    }

    fn heed(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match (decoded(bytes), &self.nonce) {
            (Some(ToGuest::Welcome(tag)), Some(nonce)) => {
                if !is_proof(&self.key, b"host", &self.name, self.me, nonce, &tag) {
                    return Err(Trouble::NotMet("what answers there did not prove itself"));
                }
                self.nonce = None;
            }
            (Some(ToGuest::Leave), None) => self.leaves = true,
            (Some(ToGuest::NoRoom(limit)), Some(_)) => {
                return Err(Trouble::NoRoom(limit));
            }
            _ => return Err(Trouble::NotMet("its answer is garbled")),
        }
        Ok(())
    }

    /// Sends as much as the kernel takes.
    fn flush(&mut self, sent: &mut impl FnMut(u64)) -> Result<(), Trouble> {
        self.throttled = false;
        while let Some(parcel) = self.out.front() {
            let fds: Vec<_> = parcel.fds.iter().map(|fd| fd.as_fd()).collect();
            let (round, count) = (parcel.round, fds.len() as u8);
            match say(&self.fd, &ToHost::Parcel { round, count }, &fds) {
                Ok(()) => {
                    self.out.pop_front();
                    sent(round);
                }
                Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                    self.throttled = true;
                    break;
                }
                Err(error) if would_block(error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A new visit, if `error` ended this one because the host had not yet read who this is. A stranger would have
    /// been refused at once.
    fn again(&self, error: &Trouble) -> Option<Self> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let Trouble::Io(error) = error else {
            return None;
        };
        let sent_away = matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe);
        if !sent_away || self.is_welcome() || self.since?.elapsed() < YOUNG {
            return None;
        }
        let (me, to) = (self.me, self.to);
        tell(|| {
            tracing::debug!(
                rank = me,
                to,
                "sent away by a rank of this node: visiting it again"
            )
        });
        Self::open(self.key.clone(), self.name, me, to).ok()
    }
}

fn refused(me: usize, to: usize, why: Trouble) -> String {
    format!("rank {me} could not pass descriptors to rank {to}: {why}")
}
