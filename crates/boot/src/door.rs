//! How ranks of one node pass descriptors to each other.
//!
//! # Model
//!
//! The lowest rank of a node is its leader. It listens on a Unix socket in the abstract namespace, under a random
//! 128-bit name that reaches the others over their authenticated connections; nothing lies in a file system, and when
//! everybody has come the socket is closed. Each member keeps one connection to the leader. A *parcel* is one
//! `SOCK_SEQPACKET` message: who, which round, and the descriptors. A member sends its parcel to the leader *before*
//! its contribution goes to the hub; the leader passes parcels on to all other members. So when a rank has seen a
//! contribution, its descriptors are with the leader or further.
//!
//! # Failure
//!
//! Names of abstract sockets can be listed by anybody on the host, so a name is no proof: the kernel says
//! which user connects (`SO_PEERCRED`), and both sides prove that they know the job's secret. A stranger is sent away
//! and logged. Once that is done the kernel keeps others out of the connection, so parcels need no tags. A
//! connection that ends is no event by itself: the hub says who is lost.

use crate::secret::{Key, NONCE_LEN, Nonce, TAG_LEN, hex, random};
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
use std::time::Instant;
use tidegate_hal::control::Packet;

/// `rank, round, count`.
const PARCEL_LEN: usize = 4 + 8 + 1;
/// `rank, nonce, tag`.
const PROOF_LEN: usize = 4 + NONCE_LEN + TAG_LEN;

/// Descriptors of one rank for one round.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) rank: usize,
    pub(crate) round: u64,
    pub(crate) fds: Arc<Vec<OwnedFd>>,
}

/// What a parcel was when it arrived: the kernel leaves out descriptors that this process has no room for.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) rank: usize,
    pub(crate) round: u64,
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

fn tag(
    key: &Key,
    word: &[u8],
    name: &DoorName,
    rank: usize,
    leader: &Nonce,
    member: &Nonce,
) -> [u8; TAG_LEN] {
    key.tag(&[
        b"door",
        word,
        name,
        &(rank as u64).to_le_bytes(),
        leader,
        member,
    ])
}

fn would_block(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR)
}

/// An open connection to another rank of the node.
#[derive(Debug)]
pub(crate) struct Passage {
    fd: OwnedFd,
    out: VecDeque<Parcel>,
    /// The kernel holds too many descriptors in flight; try again soon.
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

    /// Sends what the kernel takes; returns the parcels that are out.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        self.throttled = false;
        let mut sent = 0;
        while let Some(parcel) = self.out.front() {
            let mut body = Vec::with_capacity(PARCEL_LEN);
            body.extend_from_slice(&(parcel.rank as u32).to_le_bytes());
            body.extend_from_slice(&parcel.round.to_le_bytes());
            body.push(parcel.fds.len() as u8);
            let fds: Vec<BorrowedFd<'_>> = parcel.fds.iter().map(|fd| fd.as_fd()).collect();
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

    /// The next parcel; `Ok(None)`: nothing there now; an error or `UnexpectedEof`: the connection has ended.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Arrived>> {
        // One byte more than a parcel has, to notice what is too long.
        let mut body = [0u8; PARCEL_LEN + 1];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Packet::MAX_HANDLES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(
            &self.fd,
            &mut [IoSliceMut::new(&mut body)],
            &mut ancillary,
            flags,
        );
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
        match received.bytes {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            PARCEL_LEN => {}
            _ => return Err(io::Error::other("a garbled parcel")),
        }
        let number =
            |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let count = usize::from(body[12]);
        let got = fds.len();
        Ok(Some(Arrived {
            rank: number(0) as usize,
            round: u64::from(number(4)) | u64::from(number(8)) << 32,
            fds: if got == count {
                Ok(fds)
            } else {
                Err(format!(
                    "{got} of {count} descriptors arrived: this process may have too many open (RLIMIT_NOFILE)"
                ))
            },
        }))
    }
}

impl AsFd for Passage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The leader's side while members are still to come.
#[derive(Debug)]
pub(crate) struct Porch {
    listener: OwnedFd,
    pub(crate) name: DoorName,
    key: Key,
    /// Those who have connected and not proved anything.
    pub(crate) guests: Vec<Guest>,
}

/// Somebody who has connected and not proved anything.
#[derive(Debug)]
pub(crate) struct Guest {
    fd: OwnedFd,
    nonce: Nonce,
    pub(crate) since: Instant,
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for Porch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// More than these at a time are not waited for.
const MAX_GUESTS: usize = 64;

impl Porch {
    pub(crate) fn open(key: Key, members: usize) -> io::Result<Self> {
        let name: DoorName = random()?;
        let listener = socket()?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        bind(&listener, &address(&name)?)?;
        listen(&listener, (members + MAX_GUESTS).min(4096) as i32)?;
        Ok(Self {
            listener,
            name,
            key,
            guests: Vec::new(),
        })
    }

    /// Lets in whoever waits outside, if it is a process of this user.
    pub(crate) fn admit(&mut self, now: Instant) {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = match acceptfrom_with(&self.listener, flags) {
                Ok((fd, _)) => fd,
                Err(error) => {
                    if !would_block(error) {
                        tracing::warn!(%error, "cannot accept a connection of this node");
                    }
                    return;
                }
            };
            let me = rustix::process::geteuid();
            match sockopt::socket_peercred(&fd) {
                Ok(peer) if peer.uid == me => {}
                Ok(peer) => {
                    tracing::warn!(user = peer.uid.as_raw(), pid = ?peer.pid, "refused a connection of another user");
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "refused a connection of an unknown user");
                    continue;
                }
            }
            let Ok(nonce) = random::<NONCE_LEN>() else {
                continue;
            };
            if send(&fd, &nonce, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                continue;
            }
            if self.guests.len() >= MAX_GUESTS {
                self.guests.remove(0);
            }
            self.guests.push(Guest {
                fd,
                nonce,
                since: now,
            });
        }
    }

    /// Hears guest number `index`. `None`: it has said nothing yet. Otherwise it is no guest any more, but the
    /// member it proved to be, if it did.
    pub(crate) fn hear(&mut self, index: usize) -> Option<Option<(usize, Passage)>> {
        let guest = &self.guests[index];
        let mut proof = [0u8; PROOF_LEN + 1];
        let count = match recv(&guest.fd, &mut proof[..], RecvFlags::DONTWAIT) {
            Ok((count, _)) => count,
            Err(error) if would_block(error) => return None,
            Err(_) => 0,
        };
        let guest = self.guests.remove(index);
        if count == PROOF_LEN
            && let Some((rank, answer)) =
                check_proof(&self.key, &self.name, &guest.nonce, &proof[..PROOF_LEN])
            && send(
                &guest.fd,
                &answer,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            )
            .is_ok()
        {
            return Some(Some((rank, Passage::new(guest.fd))));
        }
        tracing::warn!("refused a connection on this node: it does not belong to the job");
        Some(None)
    }
}

/// Whom a proof is of, and the answer to it.
pub(crate) fn check_proof(
    key: &Key,
    name: &DoorName,
    leader: &Nonce,
    proof: &[u8],
) -> Option<(usize, [u8; TAG_LEN])> {
    let (rank, rest) = proof.split_first_chunk::<4>()?;
    let (member, theirs) = rest.split_first_chunk::<NONCE_LEN>()?;
    let rank = u32::from_le_bytes(*rank) as usize;
    let proved = key.check(
        &[
            b"door",
            b"member",
            name,
            &(rank as u64).to_le_bytes(),
            leader,
            member,
        ],
        theirs,
    );
    proved.then(|| (rank, tag(key, b"leader", name, rank, leader, member)))
}

/// A member on its way to its leader.
#[derive(Debug)]
pub(crate) struct Visit {
    fd: OwnedFd,
    key: Key,
    name: DoorName,
    rank: usize,
    /// The tag that the leader has to send, once this side has proved itself.
    expected: Option<[u8; TAG_LEN]>,
}

impl AsFd for Visit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Visit {
    pub(crate) fn start(key: Key, name: DoorName, rank: usize) -> io::Result<Self> {
        let fd = socket()?;
        // Does not wait for the leader to accept: the queue has room for all members.
        rustix::io::retry_on_intr(|| connect(&fd, &address(&name).map_err(|_| Errno::INVAL)?))?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self {
            fd,
            key,
            name,
            rank,
            expected: None,
        })
    }

    /// Takes the next step. `Ok(Some)`: the connection stands.
    pub(crate) fn advance(&mut self) -> io::Result<bool> {
        loop {
            let mut message = [0u8; TAG_LEN + 1];
            let count = match recv(&self.fd, &mut message[..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => count,
                Err(error) if would_block(error) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let wrong = || io::Error::other("the leader of this node did not prove itself");
            let received: [u8; TAG_LEN] = message[..count].try_into().map_err(|_| wrong())?;
            match self.expected {
                Some(expected) => {
                    use subtle::ConstantTimeEq;
                    return match bool::from(expected.ct_eq(&received)) {
                        true => Ok(true),
                        false => Err(wrong()),
                    };
                }
                None => {
                    let leader: Nonce = received;
                    let mine: Nonce = random()?;
                    let proof = tag(&self.key, b"member", &self.name, self.rank, &leader, &mine);
                    let mut bytes = Vec::with_capacity(PROOF_LEN);
                    bytes.extend_from_slice(&(self.rank as u32).to_le_bytes());
                    bytes.extend_from_slice(&mine);
                    bytes.extend_from_slice(&proof);
                    send(&self.fd, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
                    self.expected = Some(tag(
                        &self.key, b"leader", &self.name, self.rank, &leader, &mine,
                    ));
                }
            }
        }
    }

    pub(crate) fn arrive(self) -> Passage {
        Passage::new(self.fd)
    }
}
