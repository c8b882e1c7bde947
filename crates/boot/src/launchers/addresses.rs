//! The addresses at which other hosts might reach this host.
//!
//! # Model
//!
//! They are the kernel's list of its own addresses (`/proc/net`), without the loopback. The address from which the
//! kernel would send to anywhere comes first, and those that are valid only on one wire come last. Some may be useless
//! to others: for example, many hosts may give their bridges for containers the same address. The others find that out
//! by trying.
//!
//! # Failure
//!
//! A host that lists nothing has no addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The most addresses that are told to others.
const MOST: usize = 16;

/// The addresses of this host, at most 16, with the likeliest first.
pub(crate) fn own() -> Vec<IpAddr> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let v4 = of_fib_trie(&read("/proc/net/fib_trie"));
    let v6 = of_if_inet6(&read("/proc/net/if_inet6"));
    let likely = [
        // These addresses are reserved for documentation. Nothing is sent, since the kernel only looks at its routes.
        source("0.0.0.0:0", "192.0.2.1:9"),
        source("[::]:0", "[2001:db8::1]:9"),
    ];
    order(likely.into_iter().flatten(), v4, v6)
}

fn order(
    likely: impl Iterator<Item = IpAddr>,
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
) -> Vec<IpAddr> {
    let (far, near): (Vec<_>, Vec<_>) =
        v4.into_iter().partition(|address| !address.is_link_local());
    let all = far.into_iter().map(IpAddr::V4);
    let all = all.chain(v6.into_iter().map(IpAddr::V6));
    let all = all.chain(near.into_iter().map(IpAddr::V4));
    let mut found = Vec::new();
    for address in likely.chain(all) {
        let local_v6 = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let usable = !address.is_loopback() && !address.is_unspecified() && !local_v6;
        if usable && !found.contains(&address) {
            found.push(address);
        }
    }
    found.truncate(MOST);
    found
}

/// The source address of data that is sent to `to`.
fn source(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// In `/proc/net/fib_trie`, an address of this host is a leaf with `/32 host LOCAL` below it.
fn of_fib_trie(text: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut leaf = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = leaf
            && !address.is_loopback()
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// A line of `/proc/net/if_inet6` has: address, interface, length of the prefix, scope (0 is global), flags, name.
fn of_if_inet6(text: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, scope) = (words.next()?, words.nth(2)?);
        let number = u128::from_str_radix(address, 16).ok()?;
        (scope == "00" && address.len() == 32).then(|| Ipv6Addr::from(number))
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/16 2 0 2\n        |-- 10.1.0.0\n           /16 link UNICAST\n        |-- 10.1.2.3\n           /32 host LOCAL\n        |-- 10.1.255.255\n           /32 link BROADCAST\nLocal:\n        |-- 127.0.0.1\n           /32 host LOCAL\n        |-- 10.1.2.3\n           /32 host LOCAL\n     |-- 169.254.7.7\n           /32 host LOCAL\n";
        let v4: Vec<Ipv4Addr> = vec![[10, 1, 2, 3].into(), [169, 254, 7, 7].into()];
        assert_eq!(of_fib_trie(trie), v4);
        let six = "00000000000000000000000000000001 01 80 10 80       lo\nfd000000000000000000000000000002 02 40 00 80     eth0\nfe8000000000000000fc00fffe000001 02 40 20 80     eth0\nshort 02 40 00 80 eth1\n";
        let v6 = of_if_inet6(six);
        assert_eq!(v6, ["fd00::2".parse::<Ipv6Addr>().unwrap()]);
        let likely = ["10.1.2.3", "::1", "fe80::1"].map(|text| text.parse().unwrap());
        let all = order(likely.into_iter(), v4, v6);
        let all: Vec<_> = all.iter().map(IpAddr::to_string).collect();
        assert_eq!(all, ["10.1.2.3", "fd00::2", "169.254.7.7"]);
    }

    #[test]
    fn one_can_listen_at_ones_own_addresses() {
        for address in own() {
            std::net::TcpListener::bind((address, 0)).unwrap();
        }
    }
}
