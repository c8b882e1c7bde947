//! TAP devices: interfaces whose frames a program reads and writes.

use crate::error::BedError;
use rustix::fs::{Mode, OFlags};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const DEVICE: &CStr = c"/dev/net/tun";

/// The part of `struct ifreq` that `TUNSETIFF` reads.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    _rest: [u8; 22],
}

const IFF_TAP: i16 = 0x0002;
/// Frames have no header of four bytes.
const IFF_NO_PI: i16 = 0x1000;
const TUNSETIFF: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<i32>(b'T', 202);

fn control() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(DEVICE, flags, Mode::empty())?)
}

/// Checks that a process that may set up networks may also make TAP devices.
pub(crate) fn is_there() -> Result<(), BedError> {
    control().map(drop).map_err(|error| {
        let device = DEVICE.to_string_lossy();
        let why = format!(
            "{device}, which a relay needs: {error} (is the module `tun` loaded, and may this user open it?)"
        );
        BedError::NoWire { why }
    })
}

/// Makes a TAP device in the network namespace of the caller; it lives as long as the descriptor.
///
/// It only makes system calls, so it may be called between fork and exec.
pub(crate) fn open(name: &[u8]) -> io::Result<OwnedFd> {
    let fd = control()?;
    let mut request = Request {
        name: [0; 16],
        flags: IFF_TAP | IFF_NO_PI,
        _rest: [0; 22],
    };
    // The last byte stays 0.
    for (to, from) in request.name[..15].iter_mut().zip(name) {
        *to = *from;
    }
    // SAFETY: `TUNSETIFF` reads (and writes back) a `struct ifreq`, which is 40 bytes of this layout: the name, then
    // the flags, then what it does not look at. The value outlives the call.
    unsafe {
        let request = rustix::ioctl::Setter::<TUNSETIFF, Request>::new(request);
        rustix::ioctl::ioctl(&fd, request)?;
    }
    Ok(fd)
}

/// Passes a descriptor on. Like [`open`], it only makes system calls.
pub(crate) fn pass(socket: BorrowedFd<'_>, fd: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(
        socket,
        &[IoSlice::new(&[0])],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives a descriptor that was passed on.
pub(crate) fn take(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut [0])],
        &mut ancillary,
        flags,
    )?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
