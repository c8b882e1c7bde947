//! The wire of the kernel: pairs of `veth`, a bridge, and `tc netem` at its ports.
//!
//! # Model
//!
//! The bridge has a namespace of its own, so that nothing of it is visible on the machine. Port `p3` leads to node 3.
//! Packets that leave by it have passed its `netem`, if there is one. To cut a link, its port is taken from the bridge:
//! the interfaces at both ends stay up, and frames are lost.
//!
//! # Failure
//!
//! `ip` or `tc` refuse devices or disciplines that the kernel does not have, with their own messages.

use crate::address::{INTERFACE, address_commands};
use crate::error::BedError;
use crate::helper::{make_net, set_up};
use crate::shape::{QUEUE, Shape};
use crate::space::{Owner, Space};

#[derive(Debug)]
pub(crate) struct Switch {
    space: Space,
}

impl Switch {
    /// Makes the bridge and the nodes.
    pub(crate) fn build(
        owner: &Owner,
        nodes: usize,
        shape: &Shape,
    ) -> Result<(Self, Vec<Space>), BedError> {
        let (space, switch) = make_net(owner)?;
        let mut helpers = Vec::with_capacity(nodes);
        for _ in 0..nodes {
            helpers.push(make_net(owner)?);
        }
        let mut commands = vec!["link add name br0 type bridge".to_owned()];
        for (node, (_, helper)) in helpers.iter().enumerate() {
            let pid = helper.pid();
            commands.push(format!(
                "link add name p{node} type veth peer name {INTERFACE} netns {pid}"
            ));
            commands.push(format!("link set dev p{node} master br0 up"));
        }
        commands.push("link set dev br0 up".to_owned());
        switch.run(&commands)?;
        let mut spaces = Vec::with_capacity(nodes);
        for (node, (space, helper)) in helpers.into_iter().enumerate() {
            let mut commands = address_commands(node, nodes);
            if !shape.is_plain() {
                // With the kernel's segmentation offload, one packet would be many on a wire, and `netem` would lose
                // and delay them all together.
                commands.push(format!("link set dev {INTERFACE} gso_max_segs 1"));
            }
            helper.run(&commands)?;
            spaces.push(space);
        }
        if !shape.is_plain() {
            let commands: Vec<_> = (0..nodes).map(|node| netem(node, shape)).collect();
            set_up("tc", &space, &commands)?;
        }
        Ok((Self { space }, spaces))
    }

    pub(crate) fn set_link(&self, node: usize, up: bool) -> Result<(), BedError> {
        // (The kernel's own port states do not work here: without a spanning tree, it sets them back.)
        let command = match up {
            true => format!("link set dev p{node} master br0"),
            false => format!("link set dev p{node} nomaster"),
        };
        set_up("ip", &self.space, &[command])
    }
}

fn netem(node: usize, shape: &Shape) -> String {
    let mut command = format!("qdisc add dev p{node} root netem limit {QUEUE}");
    if !shape.delay.is_zero() {
        command += &format!(" delay {}us", shape.delay.as_micros());
    }
    if shape.loss > 0.0 {
        command += &format!(" loss {}%", 100.0 * shape.loss);
    }
    if let Some(rate) = shape.rate {
        command += &format!(" rate {rate}bit");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn netem_is_told_the_shape() {
        let shape = Shape {
            delay: Duration::from_micros(1500),
            loss: 0.01,
            rate: Some(1_000_000_000),
        };
        let expected =
            "qdisc add dev p3 root netem limit 10000 delay 1500us loss 1% rate 1000000000bit";
        assert_eq!(netem(3, &shape), expected);
    }
}
