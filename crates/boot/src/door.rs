//! Ranks of one node pass descriptors to each other.
//!
//! # Model
//!
//! The lowest rank of a node is its leader. It listens on a Unix socket in the abstract namespace, under a random
//! 128-bit name. The other ranks get the name over their authenticated connections. So no file is made. After all
//! members have come, the socket is closed, and each member keeps one connection to the leader.
//!
//! A *parcel* is one `SOCK_SEQPACKET` message with the descriptors of one letter. A member sends its parcel to the
//! leader *before* the letter goes to the hub, and the leader passes it on to the letter's receiver. So when a rank gets
//! a letter, its descriptors have at least reached the leader. Nobody else gets them.
//!
//! # Failure
//!
//! Anyone on the host can list the names of abstract sockets, so a name proves nothing. The kernel tells which user
//! connects (`SO_PEERCRED`), and both sides prove that they know the job's secret. A stranger is refused and logged.
//! After the proofs, the kernel keeps others out of the connection, so parcels need no tags.
//!
//! All members connect at once, so the leader has room for all of them and for some strangers. It closes only
//! connections that have been silent for a while, and a member that was too slow connects again. Some kernels have a
//! short queue for new connections, and a leader may be suspended. If the queue is full, a member tries again for a
//! while, and never blocks.
//!
//! The end of such a connection is no event. The hub says which rank is lost.

use crate::handshake::PATIENCE;
use crate::ready::Crowd;
use crate::secret::{Key, NONCE_LEN, Nonce, TAG_LEN, Tag, hex, random};
use crate::wire::DoorName;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with,
    bind, connect, listen, recv, recvmsg, send, sendmsg, socket_with, sockopt,
};
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_hal::control::Packet;
use tidegate_hal::limits::no_descriptors;
use tidegate_hal::tell;

/// The content of a message with descriptors: sender, receiver, round, count, and whether the leader failed to get them.
type Said = (usize, usize, u64, u8, bool);
/// A member's proof: its rank, its nonce, its tag.
type Proof = (usize, Nonce, Tag);
/// Buffers are larger than both, so that a longer message is noticed.
const LONGEST: usize = 128;

/// Descriptors of one letter.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) round: u64,
    /// How many descriptors there are.
    pub(crate) count: u8,
    /// `None` if this rank, which should pass them on, did not get them.
    pub(crate) fds: Option<Vec<Arc<OwnedFd>>>,
}

/// A parcel as it arrived. The kernel drops descriptors for which this process has no room.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) round: u64,
    pub(crate) count: u8,
    /// The descriptors, or why there are none: a text for people, with the name of the limit.
    pub(crate) fds: Result<Vec<OwnedFd>, String>,
}

fn address(name: &DoorName) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(
        format!("tidegate-{}", hex(name)).as_bytes(),
    )?)
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// The parts that a proof covers: `word` says which side made it, and both nonces are included.
fn parts<'a>(
    word: &'a [u8],
    name: &'a DoorName,
    rank: &'a [u8; 8],
    [leader, member]: [&'a Nonce; 2],
) -> [&'a [u8]; 6] {
    [b"door", word, name, rank, leader, member]
}

fn would_block(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR)
}

/// An open connection to another rank of the node.
#[derive(Debug)]
pub(crate) struct Passage {
    fd: OwnedFd,
    out: VecDeque<Parcel>,
    /// The kernel holds too many descriptors in flight, so sending must be tried again soon.
    pub(crate) throttled: bool,
}

impl Passage {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            out: VecDeque::new(),
            throttled: false,
        }
    }

    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.out.push_back(parcel);
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.out.is_empty() && !self.throttled
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// How many parcels are queued.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Sends as much as the kernel takes. Returns the number of parcels that were sent.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        self.throttled = false;
        let mut sent = 0;
        while let Some(parcel) = self.out.front() {
            let lost = parcel.fds.is_none();
            let said: Said = (parcel.from, parcel.to, parcel.round, parcel.count, lost);
            let body = postcard::to_stdvec(&said).expect("plain data can be encoded");
            let fds = parcel.fds.iter().flatten();
            let fds: Vec<BorrowedFd<'_>> = fds.map(|fd| fd.as_fd()).collect();
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Packet::MAX_HANDLES))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(io::Error::other("too many descriptors for one message"));
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.fd, &[IoSlice::new(&body)], &mut ancillary, flags) {
                Ok(_) => {
                    self.out.pop_front();
                    sent += 1;
                }
                Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                    self.throttled = true;
                    break;
                }
                Err(error) if would_block(error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// The next parcel. `Ok(None)` means that none has arrived; an error or `UnexpectedEof`, that the connection has
    /// ended.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Arrived>> {
        let mut body = [0u8; LONGEST];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Packet::MAX_HANDLES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut receive = || {
            let body = &mut [IoSliceMut::new(&mut body)];
            recvmsg(&self.fd, body, &mut ancillary, flags)
        };
        // If the other side ended with parcels unread, the kernel says so once, before it gives what that side had sent.
        let received = match receive() {
            Err(Errno::CONNRESET) => receive(),
            received => received,
        };
        let received = match received {
            Ok(received) => received,
            Err(error) if would_block(error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Ok(((from, to, round, count, lost), [])) =
            postcard::take_from_bytes::<Said>(&body[..received.bytes])
        else {
            return Err(io::Error::other("a garbled parcel"));
        };
        let got = fds.len();
        Ok(Some(Arrived {
            from,
            to,
            round,
            count,
            fds: if lost {
                Err("the lowest rank of this node, which passes descriptors on, did not get them; its log says why".into())
            } else if got == usize::from(count) {
                Ok(fds)
            } else {
                Err(format!("{got} of {count} arrived: {}", no_descriptors()))
            },
        }))
    }
}

impl AsFd for Passage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The leader's side, while members are still missing.
#[derive(Debug)]
pub(crate) struct Porch {
    listener: OwnedFd,
    pub(crate) name: DoorName,
    key: Key,
    /// Connections that have proved nothing yet, in the order in which they came.
    pub(crate) guests: Vec<Guest>,
    /// The connections of the guests, by their numbers.
    pub(crate) crowd: Crowd,
    /// How many of them may wait at a time.
    room: usize,
    /// Accepting failed (because of too many open files, for example). It is tried again at this time.
    accept_after: Option<Instant>,
}

/// A connection that has proved nothing yet.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Guests are numbered in the order in which they come.
    number: usize,
    fd: OwnedFd,
    nonce: Nonce,
    pub(crate) since: Instant,
}

impl AsFd for Porch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// How many strangers have room, besides all members.
const STRANGERS: usize = 64;
/// A younger guest is not sent away, since it may be a slow member.
const YOUNG: Duration = Duration::from_millis(500);

impl Porch {
    pub(crate) fn open(key: Key, members: usize) -> io::Result<Self> {
        let name: DoorName = random()?;
        let listener = socket()?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        bind(&listener, &address(&name)?)?;
        let room = members + STRANGERS;
        listen(&listener, room.min(4096) as i32)?;
        Ok(Self {
            listener,
            name,
            key,
            guests: Vec::new(),
            crowd: Crowd::new()?,
            room,
            accept_after: None,
        })
    }

    /// Until when no guest can be accepted: there is no room and no guest to send away, or accepting failed.
    pub(crate) fn crowded_until(&self, now: Instant) -> Option<Instant> {
        let oldest = self
            .guests
            .first()
            .filter(|_| self.guests.len() >= self.room);
        let room = oldest.map(|guest| guest.since + YOUNG);
        room.max(self.accept_after).filter(|until| now < *until)
    }

    /// Accepts the waiting connections of processes of this user.
    pub(crate) fn admit(&mut self, now: Instant) {
        while self.crowded_until(now).is_none() {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = match acceptfrom_with(&self.listener, flags) {
                Ok((fd, _)) => fd,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    if !would_block(error) {
                        tell(
                            || tracing::warn!(%error, "cannot accept a connection of this node for a moment"),
                        );
                        self.accept_after = Some(now + Duration::from_millis(200));
                    }
                    return;
                }
            };
            let me = rustix::process::geteuid();
            match sockopt::socket_peercred(&fd) {
                Ok(peer) if peer.uid == me => {}
                Ok(peer) => {
                    tell(
                        || tracing::warn!(user = peer.uid.as_raw(), pid = ?peer.pid, "refused a connection of another user"),
                    );
                    continue;
                }
                Err(error) => {
                    tell(|| tracing::warn!(%error, "refused a connection of an unknown user"));
                    continue;
                }
            }
            let Ok(nonce) = random::<NONCE_LEN>() else {
                continue;
            };
            if send(&fd, &nonce, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                continue;
            }
            if self.guests.len() >= self.room {
                self.take(0);
                tell(|| {
                    tracing::warn!(
                        "sent a silent connection of this node away to make room for others"
                    )
                });
            }
            let number = self.guests.last().map_or(0, |last| last.number + 1);
            if let Err(error) = self.crowd.add(&fd, number) {
                tell(|| tracing::warn!(%error, "cannot watch a connection of this node"));
                continue;
            }
            // This is not `now`, which may be before the guest came, and would give a wrong length of its visit.
            self.guests.push(Guest {
                number,
                fd,
                nonce,
                since: Instant::now(),
            });
        }
    }

    /// The places of the guests of which something can be read, in ascending order.
    pub(crate) fn readable(&self) -> Vec<usize> {
        let numbers = self.crowd.readable().into_iter();
        let place = |number| {
            self.guests
                .binary_search_by_key(&number, |guest| guest.number)
        };
        let mut places: Vec<_> = numbers.filter_map(|number| place(number).ok()).collect();
        places.sort_unstable();
        places
    }

    /// Sends away the guests that have taken too long.
    pub(crate) fn see_off(&mut self, now: Instant) {
        while let Some(oldest) = self.guests.first()
            && now >= oldest.since + PATIENCE
        {
            self.take(0);
        }
    }

    fn take(&mut self, index: usize) -> Guest {
        let guest = self.guests.remove(index);
        self.crowd.remove(&guest.fd);
        guest
    }

    /// Reads from the guest at this place. Returns `None` if the guest has not finished its proof. Otherwise it is no
    /// guest any more, and the result is the member, if it has proved to be one.
    pub(crate) fn hear(&mut self, index: usize) -> Option<Option<(usize, Passage)>> {
        let guest = &self.guests[index];
        let mut proof = [0u8; LONGEST];
        let count = match recv(&guest.fd, &mut proof[..], RecvFlags::DONTWAIT) {
            Ok((count, _)) => count,
            Err(error) if would_block(error) => return None,
            Err(_) => 0,
        };
        let guest = self.take(index);
        if let Some((rank, answer)) =
            check_proof(&self.key, &self.name, &guest.nonce, &proof[..count])
            && send(
                &guest.fd,
                &answer,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            )
            .is_ok()
        {
            return Some(Some((rank, Passage::new(guest.fd))));
        }
        tell(|| tracing::warn!("refused a connection on this node: it does not belong to the job"));
        Some(None)
    }
}

/// The rank that a proof is of, and the answer to it.
pub(crate) fn check_proof(
    key: &Key,
    name: &DoorName,
    leader: &Nonce,
    proof: &[u8],
) -> Option<(usize, [u8; TAG_LEN])> {
    let Ok(((rank, member, theirs), [])) = postcard::take_from_bytes::<Proof>(proof) else {
        return None;
    };
    let number = (rank as u64).to_le_bytes();
    let of = |word| parts(word, name, &number, [leader, &member]);
    let proved = key.check(&of(b"member"), &theirs);
    proved.then(|| (rank, key.tag(&of(b"leader"))))
}

/// A member that is connecting to its leader.
#[derive(Debug)]
pub(crate) struct Visit {
    fd: OwnedFd,
    key: Key,
    name: DoorName,
    rank: usize,
    begun: Instant,
    /// When the connection was made. `None`: the leader's queue was full so far.
    since: Option<Instant>,
    /// The nonces of the leader and of this side, once this side has sent its proof. The leader's proof covers them.
    nonces: Option<[Nonce; 2]>,
}

impl AsFd for Visit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How long a member tries while the leader's queue is full.
const CROWDED: Duration = Duration::from_secs(60);

impl Visit {
    pub(crate) fn start(key: Key, name: DoorName, rank: usize) -> io::Result<Self> {
        let fd = socket()?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        let mut visit = Self {
            fd,
            key,
            name,
            rank,
            begun: Instant::now(),
            since: None,
            nonces: None,
        };
        visit.connect()?;
        Ok(visit)
    }

    /// Whether the kernel has taken the connection. Only then can the member wait for something.
    pub(crate) fn is_connected(&self) -> bool {
        self.since.is_some()
    }

    /// Connects, if the leader's queue has room.
    fn connect(&mut self) -> io::Result<()> {
        let address = address(&self.name)?;
        match rustix::io::retry_on_intr(|| connect(&self.fd, &address)) {
            Ok(()) => self.since = Some(Instant::now()),
            Err(Errno::AGAIN) if self.begun.elapsed() < CROWDED => {}
            Err(Errno::AGAIN) => {
                let text = format!("it has let nobody in for {CROWDED:.0?}: is it stopped?");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A new visit, if `error` ended this one because this side took too long to prove itself. A stranger would have
    /// been refused at once.
    pub(crate) fn again(&self, error: &io::Error) -> Option<Self> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let sent_away = matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe);
        if !sent_away || self.since?.elapsed() < YOUNG {
            return None;
        }
        tell(|| {
            tracing::debug!(
                rank = self.rank,
                "sent away by the leader of this node: visiting it again"
            )
        });
        Self::start(self.key.clone(), self.name, self.rank).ok()
    }

    /// Takes the next step. `Ok(true)`: the connection is ready.
    pub(crate) fn advance(&mut self) -> io::Result<bool> {
        if !self.is_connected() {
            self.connect()?;
        }
        if !self.is_connected() {
            return Ok(false);
        }
        loop {
            let mut message = [0u8; TAG_LEN + 1];
            let count = match recv(&self.fd, &mut message[..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => count,
                Err(error) if would_block(error) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if count == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it closed the connection",
                ));
            }
            let wrong = || io::Error::other("the leader of this node did not prove itself");
            let received: [u8; TAG_LEN] = message[..count].try_into().map_err(|_| wrong())?;
            let number = (self.rank as u64).to_le_bytes();
            match &self.nonces {
                Some([leader, mine]) => {
                    let parts = parts(b"leader", &self.name, &number, [leader, mine]);
                    return if self.key.check(&parts, &received) {
                        Ok(true)
                    } else {
                        Err(wrong())
                    };
                }
                None => {
                    let leader: Nonce = received;
                    let mine: Nonce = random()?;
                    let parts = parts(b"member", &self.name, &number, [&leader, &mine]);
                    let proof: Proof = (self.rank, mine, self.key.tag(&parts));
                    let bytes = postcard::to_stdvec(&proof).expect("plain data can be encoded");
                    send(&self.fd, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
                    self.nonces = Some([leader, mine]);
                }
            }
        }
    }

    pub(crate) fn arrive(self) -> Passage {
        Passage::new(self.fd)
    }
}

#[cfg(test)]
mod tests;
