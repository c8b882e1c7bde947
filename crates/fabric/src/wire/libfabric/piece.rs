//! Writes and reads of one piece of memory.

use tidegate_ffi::fabric::{
    Desc, Endpoint, Local, Message, OpFlags, Peer, Post, RemotePiece, RemoteRegion,
};
use tidegate_hal::nic::NicError;

use super::super::LAST;
use super::region::system;

/// What is done with a piece.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Read,
    /// A write, with a notice if there is one.
    Write(Option<u64>),
}

/// A piece of this end's memory.
pub(super) fn local(address: *mut u8, len: usize) -> Local {
    Local {
        address: address.cast(),
        len,
        desc: Desc::NONE,
    }
}

/// A piece of a peer's memory.
pub(super) fn remote(region: &RemoteRegion, offset: usize, len: usize) -> RemotePiece {
    RemotePiece {
        address: region.base() + offset as u64,
        len,
        key: region.key(),
    }
}

/// Posts an operation.
///
/// # Safety
///
/// As for [`Wire::post`](super::super::Wire::post).
pub(super) unsafe fn transfer(
    endpoint: &Endpoint,
    (here, there): (Local, RemotePiece),
    peer: Peer,
    kind: Kind,
    context: usize,
) -> Result<Post, NicError> {
    let (reads, notice) = match kind {
        Kind::Read => (true, None),
        Kind::Write(notice) => (false, notice),
    };
    let mut flags = OpFlags::COMPLETION;
    // A signal's word shows that it has arrived. Everything else needs a completion for that.
    let signals = notice.is_some_and(|notice| notice & LAST == 0);
    if !reads && !signals {
        flags = flags | OpFlags::DELIVERY_COMPLETE;
    }
    if notice.is_some() {
        flags = flags | OpFlags::REMOTE_CQ_DATA;
    }
    let message = Message {
        local: &[here],
        peer,
        remote: &[there],
        context,
        data: notice.unwrap_or(0),
        flags,
    };
    // SAFETY: the caller's promise for the memory. The context is a number, and no provider dereferences it, because
    // the hints offer no mode that would.
    let posted = unsafe {
        if reads {
            endpoint.read_msg(&message)
        } else {
            endpoint.write_msg(&message)
        }
    };
    posted.map_err(system("posting an operation"))
}
