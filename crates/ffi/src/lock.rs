//! Locks on ranges of a file, which belong to an open description of the file.
//!
//! Such a lock is held as long as any descriptor of the description is open. So the kernel ends it when the process
//! that has opened the file ends, in whatever way. Another description, even of the same process, is another holder.
//! (The process's older kind of locks has neither property, and rustix has no others.)

use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A lock that others may hold, too.
    Shared,
    /// A lock that nobody else holds.
    Alone,
    /// No lock.
    Nothing,
}

/// Takes, changes or ends a lock on bytes of a file. Returns whether it succeeded: it does not wait for other holders.
///
/// # Errors
///
/// If the system refuses; for a lock of either kind, also if the description may not read or write the file.
pub fn lock(file: BorrowedFd<'_>, bytes: Range<u64>, hold: Hold) -> io::Result<bool> {
    let kind = match hold {
        Hold::Shared => libc::F_RDLCK,
        Hold::Alone => libc::F_WRLCK,
        Hold::Nothing => libc::F_UNLCK,
    };
    let no = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let range = libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: i64::try_from(bytes.start).map_err(no)?,
        l_len: i64::try_from(bytes.end - bytes.start).map_err(no)?,
        // The kernel wants this for locks of descriptions.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the structure lives.
    let done: c_int = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
