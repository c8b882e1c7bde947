//! The addresses of nodes on their wire.

use std::net::Ipv4Addr;

/// The interface of each node.
pub const INTERFACE: &str = "fab0";
/// The most nodes of a bed.
pub const MAX_NODES: usize = 250;

pub(crate) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, node as u8 + 1)
}

/// The address is locally administered, and has the node in its last byte.
fn mac(node: usize) -> [u8; 6] {
    [0x02, b't', b'i', b'd', b'e', node as u8 + 1]
}

/// The node that a hardware address belongs to.
pub(crate) fn node_of_mac(address: &[u8; 6]) -> Option<usize> {
    let node = usize::from(address[5]).checked_sub(1)?;
    (*address == mac(node)).then_some(node)
}

/// Commands of `ip` that set the addresses of a node's interface, and its neighbours. Neighbours are entered by hand,
/// so that a lossy wire loses no ARP packet. Also, a cut wire then makes no neighbour unreachable: that would be an
/// error, where tests want silence.
pub(crate) fn address_commands(node: usize, nodes: usize) -> Vec<String> {
    let hardware = |node| mac(node).map(|byte| format!("{byte:02x}")).join(":");
    let mut commands = vec![
        "link set dev lo up".to_owned(),
        format!("link set dev {INTERFACE} address {}", hardware(node)),
        format!("address add {}/24 dev {INTERFACE}", address(node)),
        format!("link set dev {INTERFACE} up"),
    ];
    for other in (0..nodes).filter(|other| *other != node) {
        let (address, hardware) = (address(other), hardware(other));
        commands.push(format!(
            "neighbour add {address} lladdr {hardware} dev {INTERFACE} nud permanent"
        ));
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_say_whose_they_are() {
        for node in [0, 1, MAX_NODES - 1] {
            assert_eq!(node_of_mac(&mac(node)), Some(node));
        }
        assert_eq!(node_of_mac(&[0xff; 6]), None);
        assert_eq!(node_of_mac(&[0x02, b't', b'i', b'd', b'e', 0]), None);
    }
}
