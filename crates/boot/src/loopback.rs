//! The loopback address of this host, which may have only one of the two kinds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// The loopback address at which processes of this host can meet: the one of IPv4, or of IPv6 if there is no other.
pub fn loopback() -> IpAddr {
    let can_listen = |address| TcpListener::bind((address, 0)).is_ok();
    let (v4, v6) = (
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    );
    if !can_listen(v4) && can_listen(v6) {
        v6
    } else {
        v4
    }
}
