//! Reads and writes of remote memory.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::av::Peer;
use super::endpoint::{Endpoint, Local, Post, Remote};
use super::error::{FabricError, Result};
use super::flags::OpFlags;
use super::object::required;
use super::sys::{self, Zeroed};

/// A piece of a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemotePiece {
    /// Where it begins: [`MemoryRegion::remote_base`](super::MemoryRegion::remote_base) plus an offset.
    pub address: u64,
    /// Its length.
    pub len: usize,
    /// Its key.
    pub key: u64,
}

/// A write or read of several pieces of memory, with flags of its own (`struct fi_msg_rma`).
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The pieces of this end's memory.
    pub local: &'a [Local],
    /// The peer.
    pub peer: Peer,
    /// The pieces of the peer's memory, with as many bytes in all.
    pub remote: &'a [RemotePiece],
    /// A number that comes back with its completion at this end.
    pub context: usize,
    /// A number that comes with its completion at the other end, with [`OpFlags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// The flags.
    pub flags: OpFlags,
}

/// The most pieces that a [`Message`] can have.
pub const MAX_PIECES: usize = 8;

impl Endpoint {
    /// Writes bytes, with data for the target's queue (`fi_inject_writedata`). When the call returns, the bytes can be
    /// used again. There is no completion in this end's queue, but counters count the write.
    ///
    /// # Errors
    ///
    /// `FI_EMSGSIZE` for more bytes than [`inject_size`](Self::inject_size), and the errors of the provider.
    pub fn inject_write_data(&self, bytes: &[u8], data: u64, to: Remote) -> Result<Post> {
        const CALL: &str = "fi_inject_writedata";
        let peer = self.number(CALL, to.peer)?;
        self.can_inject(CALL, bytes.len())?;
        // SAFETY: the table lives as long as the endpoint.
        let inject = unsafe { required!(self.rma(), fi_ops_rma, injectdata, CALL) }?;
        // SAFETY: the endpoint is alive; the bytes are read before the call returns. The peer agreed to the write when
        // it registered its memory.
        let answer = unsafe {
            inject(
                self.as_raw(),
                bytes.as_ptr().cast(),
                bytes.len(),
                data,
                peer,
                to.address,
                to.key,
            )
        };
        self.posted(CALL, answer)
    }

    /// Writes pieces of memory, with flags (`fi_writemsg`).
    ///
    /// # Errors
    ///
    /// [`is_refused`](FabricError::is_refused) for more than [`MAX_PIECES`], and the errors that the provider finds at
    /// once. Other errors, such as a wrong key, come as a completion.
    ///
    /// # Safety
    ///
    /// The following holds until a queue or a counter has reported the completion, or the endpoint is closed. The
    /// memory of all pieces is readable, nothing writes it, and its registrations live. (With [`OpFlags::INJECT`], this
    /// must hold only until the call returns.) If the description's mode has `CONTEXT` or `CONTEXT2`, `context` is the
    /// address of such memory, and nothing else uses that memory.
    pub unsafe fn write_msg(&self, message: &Message<'_>) -> Result<Post> {
        const CALL: &str = "fi_writemsg";
        let mut lists = Lists::new(CALL, message)?;
        let raw = lists.message(self.number(CALL, message.peer)?, message);
        // SAFETY: the table lives as long as the endpoint.
        let write = unsafe { required!(self.rma(), fi_ops_rma, writemsg, CALL) }?;
        // SAFETY: the endpoint is alive. The message and its lists live until the call is over. The provider copies
        // them, unless the mode is `ASYNC_IOV`, which the hints of this crate offer only on demand. The caller vouches
        // for the memory and the context.
        let answer = unsafe { write(self.as_raw(), &raw, message.flags.0) };
        self.posted(CALL, answer)
    }

    /// Reads pieces of memory, with flags (`fi_readmsg`).
    ///
    /// # Errors
    ///
    /// As for [`write_msg`](Self::write_msg).
    ///
    /// # Safety
    ///
    /// As for [`write_msg`](Self::write_msg), except that the memory is writable, and nothing else touches it.
    pub unsafe fn read_msg(&self, message: &Message<'_>) -> Result<Post> {
        const CALL: &str = "fi_readmsg";
        let mut lists = Lists::new(CALL, message)?;
        let raw = lists.message(self.number(CALL, message.peer)?, message);
        // SAFETY: the table lives as long as the endpoint.
        let read = unsafe { required!(self.rma(), fi_ops_rma, readmsg, CALL) }?;
        // SAFETY: as for `write_msg`.
        let answer = unsafe { read(self.as_raw(), &raw, message.flags.0) };
        self.posted(CALL, answer)
    }
}

/// The lists that a message points to.
struct Lists {
    local: [sys::iovec; MAX_PIECES],
    desc: [*mut c_void; MAX_PIECES],
    remote: [sys::fi_rma_iov; MAX_PIECES],
}

impl Lists {
    fn new(call: &'static str, message: &Message<'_>) -> Result<Lists> {
        if message.local.len() > MAX_PIECES || message.remote.len() > MAX_PIECES {
            return Err(FabricError::refused(
                call,
                format!(
                    "{} and {} pieces, where {MAX_PIECES} are possible",
                    message.local.len(),
                    message.remote.len()
                ),
            ));
        }
        let mut lists = Lists {
            local: [sys::iovec {
                iov_base: null_mut(),
                iov_len: 0,
            }; MAX_PIECES],
            desc: [null_mut(); MAX_PIECES],
            remote: [sys::fi_rma_iov {
                addr: 0,
                len: 0,
                key: 0,
            }; MAX_PIECES],
        };
        for (at, piece) in message.local.iter().enumerate() {
            lists.local[at] = sys::iovec {
                iov_base: piece.address,
                iov_len: piece.len,
            };
            lists.desc[at] = piece.desc.0;
        }
        for (at, piece) in message.remote.iter().enumerate() {
            lists.remote[at] = sys::fi_rma_iov {
                addr: piece.address,
                len: piece.len,
                key: piece.key,
            };
        }
        Ok(lists)
    }

    /// The message, which points into `self`.
    fn message(&mut self, peer: sys::fi_addr_t, message: &Message<'_>) -> sys::fi_msg_rma {
        let mut raw = sys::fi_msg_rma::zeroed();
        raw.msg_iov = self.local.as_ptr();
        raw.desc = self.desc.as_mut_ptr();
        raw.iov_count = message.local.len();
        raw.addr = peer;
        raw.rma_iov = self.remote.as_ptr();
        raw.rma_iov_count = message.remote.len();
        raw.context = message.context as *mut c_void;
        raw.data = message.data;
        raw
    }
}
