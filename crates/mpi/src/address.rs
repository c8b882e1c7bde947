//! Where rank 0 can be reached.
//!
//! # Model
//!
//! Ranks that see one network of one kernel meet at its loopback address, which nobody else can reach. Otherwise rank 0 listens at all its
//! addresses and names them; the others try them by turns, and it is the proof of the secret that says which was the right
//! one. `TIDEGATE_ADDRESS` goes before both.
//!
//! # Failure
//!
//! What cannot be found out makes ranks seem further apart, which costs a connection by way of a network card, and nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest as _, Sha256};

/// Tells networks apart: ranks with the same number reach each other by the loopback address. `fallback` is a number of this rank alone.
pub(crate) fn network(fallback: usize) -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/net");
    let mut hash = Sha256::new();
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => {
            hash.update(boot.trim());
            hash.update(namespace.as_os_str().as_encoded_bytes());
        }
        _ => hash.update(fallback.to_le_bytes()),
    }
    let hash: [u8; 32] = hash.finalize().into();
    u64::from_le_bytes(hash[..8].try_into().expect("eight bytes"))
}

/// The addresses of this host that others may reach.
pub(crate) fn own() -> Vec<IpAddr> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut all: Vec<IpAddr> = Vec::new();
    let (four, six) = (read("/proc/net/fib_trie"), read("/proc/net/if_inet6"));
    let (four, six) = (ipv4(&four).map(IpAddr::V4), ipv6(&six).map(IpAddr::V6));
    for address in four.chain(six) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// Out of the kernel's routes: an address, and in a later line that it is one of this host.
fn ipv4(routes: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    routes.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
            return None;
        }
        let own = line == "/32 host LOCAL";
        last.filter(|address| own && !address.is_loopback())
    })
}

/// Out of the kernel's list: address, index, length, scope, flags, name. Those of scope 0 are good everywhere.
fn ipv6(list: &str) -> impl Iterator<Item = Ipv6Addr> {
    list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(2)? == "00").then(|| Ipv6Addr::from(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_says() {
        let routes = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.1.0.0/16 2 0 2
        |-- 10.1.0.0
           /16 link UNICAST
        |-- 10.1.2.3
           /32 host LOCAL
        |-- 10.1.255.255
           /32 link BROADCAST
        |-- 127.0.0.1
           /32 host LOCAL
";
        let found: Vec<_> = ipv4(routes).collect();
        assert_eq!(found, [Ipv4Addr::new(10, 1, 2, 3)]);
        let list = "\
fd000000000000000000000000000007 02 40 00 80     eth0
fe800000000000000042acfffe110002 02 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
";
        let found: Vec<_> = ipv6(list).collect();
        assert_eq!(found, ["fd00::7".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!(network(0), network(1), "this kernel says where it is");
    }
}
