//! Descriptors that a rank inherits from its launcher. One is a listening socket for rank 0, so that no other process
//! can take the port in between.

use crate::error::BootError;
use crate::variables::bad;
use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_hal::tell;

/// The variable that names the inherited descriptor and its socket.
pub const LISTEN_FD: &str = tidegate_hal::variables::LISTEN_FD.name;

/// Whether this process has taken the descriptor.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The value of the variable for a process that inherits a descriptor under its present number.
pub fn announce(fd: impl AsFd) -> io::Result<String> {
    let fd = fd.as_fd();
    let inode = fstat(fd)?.st_ino;
    Ok(format!("{}:{inode}", fd.as_raw_fd()))
}

/// The value of a variable that [`announce`] has made, and the descriptor and inode in it.
pub(crate) fn announced(variable: &'static str) -> Result<Option<(String, RawFd, u64)>, BootError> {
    let Some(value) = std::env::var_os(variable) else {
        return Ok(None);
    };
    let value = value.to_string_lossy().into_owned();
    let parsed = value.split_once(':').and_then(|(number, inode)| {
        let number = number.parse().ok().filter(|number: &i32| *number > 2)?;
        Some((number, inode.parse().ok()?))
    });
    match parsed {
        Some((number, inode)) => Ok(Some((value, number, inode))),
        None => {
            let expected =
                "it must be the number of an inherited descriptor above 2, a colon, and its inode";
            Err(bad(variable, &value, expected))
        }
    }
}

/// The socket that the launcher left open for rank 0, if this process has it.
pub(crate) fn take_listener() -> Result<Option<TcpListener>, BootError> {
    let Some((value, number, inode)) = announced(LISTEN_FD)? else {
        return Ok(None);
    };
    if !is_meant(number, inode).unwrap_or(false)
        || !came_with_the_process(LISTEN_FD, &value)
        || TAKEN.swap(true, Ordering::SeqCst)
    {
        tell(
            || tracing::debug!(%value, "TIDEGATE_LISTEN_FD names no socket that this process could take"),
        );
        return Ok(None);
    }
    // SAFETY: the descriptor is open, and nothing in this process owns it. It was inherited, since it stays open across
    // `exec`, and is the socket whose inode was known before this process began (`is_meant`, `came_with_the_process`).
    // And it was not taken before (`TAKEN`).
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&owned, FdFlags::CLOEXEC)
        .map_err(|error| BootError::io("closing the listening socket to child processes", error))?;
    Ok(Some(TcpListener::from(owned)))
}

/// Whether the descriptor is the socket with this inode, inherited, and listening.
fn is_meant(number: RawFd, inode: u64) -> io::Result<bool> {
    let inherited = is_inherited(number)?;
    let fd = duplicate(number)?;
    let found = fstat(&fd)?;
    Ok(inherited
        && FileType::from_raw_mode(found.st_mode) == FileType::Socket
        && found.st_ino == inode
        && sockopt::socket_acceptconn(&fd)?)
}

/// Whether the variable had this value from the beginning: the kernel shows the environment that `exec` passed. Without
/// `/proc`, the answer is yes.
pub(crate) fn came_with_the_process(variable: &str, value: &str) -> bool {
    let entry = format!("{variable}={value}");
    std::fs::read("/proc/self/environ").map_or(true, |all| {
        all.split(|byte| *byte == 0)
            .any(|found| found == entry.as_bytes())
    })
}

/// Whether a descriptor stays open across `exec`. An inherited one does. One that Rust has opened in this process does
/// not, so an inherited one has no owner here.
///
/// The argument is a number, since nothing guarantees that it stays open.
pub(crate) fn is_inherited(number: RawFd) -> io::Result<bool> {
    // SAFETY: the call takes any number, changes nothing, and fails if the number is no open descriptor.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    match flags {
        -1 => Err(io::Error::last_os_error()),
        flags => Ok(flags & libc::FD_CLOEXEC == 0),
    }
}

/// A new descriptor for the file that this number refers to. It is closed at `exec`.
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes any number, does not change an open descriptor, and fails if there is none.
    match unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call has succeeded, so this descriptor is new, and only this value has it.
        new => Ok(unsafe { OwnedFd::from_raw_fd(new) }),
    }
}

/// Adds to the error of rank 0 at its address, if another process has the socket that was meant for it.
pub(crate) fn why_taken(error: io::Error) -> io::Error {
    let lost = std::env::var_os(LISTEN_FD).is_some() && !TAKEN.load(Ordering::SeqCst);
    match error.kind() {
        ErrorKind::AddrInUse if lost => io::Error::new(
            ErrorKind::AddrInUse,
            format!(
                "{error}; the launcher has passed on a socket for this, and this process does not have it: either a program \
                 that rank 0 has started tries to join as rank 0 (start it without RANK and WORLD_SIZE), or a program \
                 between the launcher and rank 0 closes descriptors (Python's `subprocess` does without `close_fds=False`)"
            ),
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpStream, UdpSocket};
    use std::os::fd::BorrowedFd;

    #[test]
    fn only_the_inherited_listening_socket_itself_is_meant() {
        let inode = |fd: BorrowedFd<'_>| fstat(fd).unwrap().st_ino;
        let open_across_exec = |fd: BorrowedFd<'_>| fcntl_setfd(fd, FdFlags::empty()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.as_fd();
        let is_meant = |fd: BorrowedFd<'_>, inode| is_meant(fd.as_raw_fd(), inode);
        assert!(
            !is_meant(own, inode(own)).unwrap(),
            "this program opened it"
        );
        open_across_exec(own);
        assert!(is_meant(own, inode(own)).unwrap());
        assert!(!is_meant(own, inode(own) + 1).unwrap());
        assert!(!came_with_the_process(
            LISTEN_FD,
            &announce(&listener).unwrap()
        ));

        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        for other in [stream.as_fd(), datagrams.as_fd(), file.as_fd()] {
            open_across_exec(other);
            let meant = is_meant(other, inode(other));
            assert!(!meant.unwrap_or(false), "{other:?}");
        }
        assert!(super::is_meant(i32::MAX, inode(own)).is_err(), "not open");
    }
}
