//! A port where nobody listens.
//!
//! One that was free a moment ago may be anybody's by the time it is used. So it is held: a socket is bound to it that
//! does not listen. Connections are refused, the system gives the port to nobody who asks for any, and who asks for this
//! one gets it nevertheless (of two sockets that say `SO_REUSEADDR`, as those of `std` do, only one may listen).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketAddrV4, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// Holds a port of all addresses of version 4.
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
