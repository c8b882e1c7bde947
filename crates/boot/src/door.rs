//! Ranks of one node pass descriptors to each other.
//!
//! # Model
//!
//! Each rank has a *door*: a Unix socket in the abstract namespace. Its name follows from the job's secret and from
//! random bytes of rank 0, so all ranks of the job know it, and nobody else can. No file is made.
//!
//! A *parcel* is one `SOCK_SEQPACKET` message with the descriptors of one letter. Its sender connects to the receiver's
//! door ([`Visit`]) and sends it there, *before* the letter goes to the hub. So when a rank gets a letter, its
//! descriptors are in a socket of that rank, or the letter says why they are not. Nobody else gets them.
//!
//! A connection is kept for the next parcel, so that opening a second window costs less than the first. Both sides keep
//! few. The sender closes the one that it has not used for longest; a host that needs room asks for it. Only the sender
//! closes, so no parcel is lost in between.
//!
//! # Failure
//!
//! Anyone on the host can list the names of abstract sockets, so a name proves nothing. The kernel tells which user
//! connects (`SO_PEERCRED`), and both sides prove that they know the job's secret. A stranger is refused and logged.
//! After the proofs, the kernel keeps others out of the connection, so parcels need no tags.
//!
//! A guest proves itself with its first message, which is good for this door only. Nobody can repeat it: only the owner
//! of the door has seen it, and the kernel gives a name to one socket at a time.
//!
//! A host that may open no more descriptors has one in reserve. With that it lets a guest in, tells it so, and sends it
//! away. Some kernels have a short queue for new connections, and a host may be suspended. If the queue is full, a rank
//! tries again for a while, and never blocks.

use crate::secret::{Key, NONCE_LEN, Nonce, Tag, random};
use crate::wire::DoorName;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
    socket_with,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tidegate_hal::control::Packet;

pub(crate) use host::Door;
pub(crate) use visit::{Step, Visit};

/// The longest message in either direction. Buffers are larger, so that a longer one is noticed.
const LONGEST: usize = 1024;
/// How old a guest that has said nothing must be before it has to make room for others.
const YOUNG: Duration = Duration::from_millis(500);

/// What a guest says.
#[derive(Debug, Serialize, Deserialize)]
enum ToHost {
    /// Which rank it is, and its proof. This is its first message.
    Hello { from: usize, nonce: Nonce, tag: Tag },
    /// The message that brings the descriptors of a letter.
    Parcel { round: u64, count: u8 },
}

/// What a host says.
#[derive(Debug, Serialize, Deserialize)]
enum ToGuest {
    /// Its own proof. The guest may send parcels now.
    Welcome(Tag),
    /// The host has no room for another connection; the text names the limit.
    NoRoom(String),
    /// The guest has to close the connection, and may come again.
    Leave,
}

/// Descriptors of one letter, on their way.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) to: usize,
    pub(crate) round: u64,
    pub(crate) fds: Vec<Arc<OwnedFd>>,
}

/// A parcel as it arrived. The kernel drops descriptors for which this process has no room.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) from: usize,
    pub(crate) round: u64,
    /// The descriptors, or why there are none: a text for people, with the name of the limit.
    pub(crate) fds: Result<Vec<OwnedFd>, String>,
}

/// The name of a rank's door. `seed` is random, and the same for all ranks of the job.
pub(crate) fn name_of(key: &Key, seed: &DoorName, rank: usize) -> DoorName {
    let tag = key.tag(&[b"name", seed, &(rank as u64).to_le_bytes()]);
    let mut name = DoorName::default();
    name.copy_from_slice(&tag[..seed.len()]);
    name
}

fn address(name: &DoorName) -> io::Result<SocketAddrUnix> {
    let name = crate::secret::hex(name);
    Ok(SocketAddrUnix::new_abstract_name(
        format!("tidegate-{name}").as_bytes(),
    )?)
}

fn socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, kind, flags, None)?)
}

/// The proof of one side, which `word` names.
fn proof(key: &Key, word: &[u8], name: &DoorName, guest: usize, nonce: &Nonce) -> Tag {
    key.tag(&[b"door", word, name, &(guest as u64).to_le_bytes(), nonce])
}

fn is_proof(
    key: &Key,
    word: &[u8],
    name: &DoorName,
    guest: usize,
    nonce: &Nonce,
    tag: &Tag,
) -> bool {
    let guest = (guest as u64).to_le_bytes();
    key.check(&[b"door", word, name, &guest, nonce], tag)
}

fn hello(key: &Key, name: &DoorName, from: usize) -> io::Result<(ToHost, Nonce)> {
    let nonce = random::<NONCE_LEN>()?;
    let tag = proof(key, b"guest", name, from, &nonce);
    Ok((ToHost::Hello { from, nonce, tag }, nonce))
}

/// The rank that has sent these bytes as its first message, and the answer to it, if it belongs to the job.
pub(crate) fn check_hello(key: &Key, name: &DoorName, bytes: &[u8]) -> Option<(usize, Tag)> {
    let Ok((ToHost::Hello { from, nonce, tag }, [])) = postcard::take_from_bytes(bytes) else {
        return None;
    };
    let is_proved = is_proof(key, b"guest", name, from, &nonce, &tag);
    is_proved.then(|| (from, proof(key, b"host", name, from, &nonce)))
}

fn would_block(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR)
}

/// Sends one message, with descriptors.
fn say(fd: &OwnedFd, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let body = postcard::to_stdvec(message).expect("plain data can be encoded");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Packet::MAX_HANDLES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(fd, &[IoSlice::new(&body)], &mut ancillary, flags).map(drop)
}

/// The next message, with the descriptors that came. `Ok(None)`: none has arrived. An error or `UnexpectedEof` means
/// that the connection has ended.
fn hear(fd: &OwnedFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut body = [0u8; LONGEST + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Packet::MAX_HANDLES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut receive = || {
        let body = &mut [IoSliceMut::new(&mut body)];
        recvmsg(fd, body, &mut ancillary, flags)
    };
    // If the other side ended with messages unread, the kernel says so once, before it gives what that side had sent.
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
    match received.bytes {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(Some((body[..count].to_vec(), fds))),
    }
}

fn decoded<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

mod host;
mod visit;

#[cfg(test)]
pub(crate) mod tests;
