//! A port at which nobody listens.
//!
//! A port that was free a moment ago may be taken by the time it is used. So a socket that does not listen is bound to
//! it. Connections are refused, and the system gives the port to nobody that asks for any port. A program that asks for
//! this one still gets it: of two sockets with `SO_REUSEADDR`, which `std` sets, only one may listen.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketAddrV4, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// Reserves a port at all addresses of IPv4.
pub(crate) struct Held {
    pub(crate) port: u16,
    _socket: OwnedFd,
}

impl Held {
    pub(crate) fn new() -> Self {
        let flags = SocketFlags::CLOEXEC;
        let held = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let held = held.expect("a socket");
        sockopt::set_socket_reuseaddr(&held, true).expect("an option");
        bind(&held, &SocketAddrV4::new([0, 0, 0, 0].into(), 0)).expect("a free port");
        let name = SocketAddr::try_from(getsockname(&held).expect("a name"));
        Held {
            port: name.expect("an address").port(),
            _socket: held,
        }
    }
}
