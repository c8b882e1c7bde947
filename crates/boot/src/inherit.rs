//! A listening socket that rank 0 inherits from its launcher, so that nobody can take the port in between.

use crate::config::{Config, bad};
use crate::error::BootError;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Names the inherited descriptor.
pub(crate) const LISTEN_FD: &str = "TIDEGATE_LISTEN_FD";

/// A descriptor can be taken over once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives rank 0 the socket that its launcher left open for it, if there is one.
pub(crate) fn take_listener(mut config: Config) -> Result<Config, BootError> {
    let Some(value) = std::env::var_os(LISTEN_FD) else {
        return Ok(config);
    };
    if config.rank != 0 || config.size == 1 || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(config);
    }
    let value = value.to_string_lossy();
    let refuse = |expected: &str| bad(LISTEN_FD, &value, expected);
    let number: i32 = match value.parse() {
        Ok(number) if number > 2 => number,
        _ => {
            return Err(refuse(
                "it must be the number of an inherited descriptor above 2",
            ));
        }
    };
    // SAFETY: the descriptor may be closed, which the calls below report as an error and are defined for; it is
    // not -1, and the borrow ends in this function.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let listening = sockopt::socket_acceptconn(borrowed) == Ok(true)
        && sockopt::socket_type(borrowed) == Ok(SocketType::STREAM)
        && matches!(
            sockopt::socket_domain(borrowed),
            Ok(AddressFamily::INET | AddressFamily::INET6)
        );
    if !listening {
        return Err(refuse("it is not a listening TCP socket"));
    }
    // SAFETY: the descriptor is open (just asked). The contract of the variable is that the launcher left it open for
    // this process to own, so nothing else here closes it; `TAKEN` keeps it from being owned twice.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC)
        .map_err(|error| BootError::io("closing the listening socket to child processes", error))?;
    config.listener = Some(TcpListener::from(owned));
    Ok(config)
}
