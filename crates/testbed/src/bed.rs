//! Beds and their builder.

use crate::address::{INTERFACE, MAX_NODES, address, address_commands};
use crate::error::BedError;
use crate::helper::{make_net_with_tap, make_user};
use crate::relay::{Relay, Traffic};
use crate::shape::Shape;
use crate::space::{Entry, Owner, Space, is_privileged};
use crate::switch::Switch;
use crate::tap;
use std::fmt;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// The first port that [`Bed::port`] returns. It is below the kernel's automatic ports.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

/// The transport of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// A bridge of the kernel.
    Bridge,
    /// A bridge of the kernel, with `tc netem` at its ports.
    Netem,
    /// A thread of this process.
    Relay,
}

/// The requested [`Wire`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireChoice {
    /// The kernel's, if it can do what is requested; otherwise the relay.
    #[default]
    Auto,
    /// The kernel's only.
    Kernel,
    /// The relay only.
    Relay,
}

/// The properties of a bed.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    nodes: usize,
    shape: Shape,
    seed: Option<u64>,
    choice: WireChoice,
    user_namespace: bool,
}

impl Builder {
    /// Sets how long packets take, one way.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.shape.delay = delay;
        self
    }

    /// Sets the share of packets that are lost, from 0 to 1.
    pub fn loss(mut self, loss: f64) -> Self {
        self.shape.loss = loss;
        self
    }

    /// Sets how many bits a second reach each node.
    pub fn rate(mut self, rate: u64) -> Self {
        self.shape.rate = Some(rate);
        self
    }

    /// Sets all of these at once.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Makes the same packets be lost in each run: the seed determines whether the nth packet from one node to another
    /// is lost. It requires a relay, because `netem` has dice of its own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the wire; [`WireChoice::Auto`] by default.
    pub fn wire(mut self, choice: WireChoice) -> Self {
        self.choice = choice;
        self
    }

    /// Makes the namespaces in a user namespace, even if this process would not need one.
    pub fn user_namespace(mut self) -> Self {
        self.user_namespace = true;
        self
    }

    /// Makes the bed.
    ///
    /// # Errors
    ///
    /// A [`BedError`] that says what is missing or wrong. Everything that had been made is gone then.
    pub fn build(self) -> Result<Bed, BedError> {
        let Shape { loss, .. } = self.shape;
        if !(1..=MAX_NODES).contains(&self.nodes) {
            let nodes = self.nodes;
            return Err(BedError::Invalid(format!(
                "a bed has between 1 and {MAX_NODES} nodes, not {nodes}"
            )));
        }
        if !(0.0..=1.0).contains(&loss) {
            return Err(BedError::Invalid(format!(
                "the part that is lost is between 0 and 1, not {loss}"
            )));
        }
        if self.seed.is_some() && self.choice == WireChoice::Kernel {
            return Err(BedError::Invalid(
                "losses that are to be the same again need a relay".to_owned(),
            ));
        }
        if is_privileged() && !self.user_namespace {
            match self.build_for(&Owner::Ours) {
                // A container may have the privileges and yet forbid the call.
                Err(error @ BedError::NotAllowed { .. }) => {
                    tracing::debug!(%error, "trying a user namespace");
                }
                made => return made,
            }
        }
        self.build_for(&make_user()?)
    }

    fn build_for(&self, owner: &Owner) -> Result<Bed, BedError> {
        let kernel = match (self.choice, self.seed) {
            (WireChoice::Relay, _) | (_, Some(_)) => None,
            _ => Some(Switch::build(owner, self.nodes, &self.shape)),
        };
        let why_not = match kernel {
            Some(Ok((switch, spaces))) => {
                let wire = match self.shape.is_plain() {
                    true => Wire::Bridge,
                    false => Wire::Netem,
                };
                return Ok(self.bed(spaces, Carrier::Switch(switch), wire, None));
            }
            // Without these, there can be no relay either.
            Some(Err(
                error @ (BedError::NotAllowed { .. } | BedError::NoProgram { program: "ip" }),
            )) => return Err(error),
            Some(Err(error)) => Some(error.to_string()),
            None => None,
        };
        if self.choice == WireChoice::Kernel {
            let why = why_not.unwrap_or_default();
            return Err(BedError::NoWire { why });
        }
        match self.build_relay(owner) {
            Ok((spaces, relay)) => {
                Ok(self.bed(spaces, Carrier::Relay(relay), Wire::Relay, why_not))
            }
            Err(error) => Err(match (why_not, error) {
                (Some(first), BedError::NoWire { why }) => BedError::NoWire {
                    why: format!("{first}; and {why}"),
                },
                (_, error) => error,
            }),
        }
    }

    fn build_relay(&self, owner: &Owner) -> Result<(Vec<Space>, Relay), BedError> {
        tap::is_there()?;
        let (mut spaces, mut taps) = (Vec::new(), Vec::new());
        for node in 0..self.nodes {
            let (space, helper, tap) = make_net_with_tap(owner, INTERFACE)?;
            helper.run(&address_commands(node, self.nodes))?;
            spaces.push(space);
            taps.push(tap);
        }
        let relay = Relay::start(taps, self.shape, self.seed.unwrap_or(0))?;
        Ok((spaces, relay))
    }

    fn bed(&self, spaces: Vec<Space>, carrier: Carrier, wire: Wire, note: Option<String>) -> Bed {
        Bed(Arc::new(Inner {
            carrier,
            spaces,
            wire,
            note,
            shape: self.shape,
            ports: AtomicU16::new(0),
        }))
    }
}

#[derive(Debug)]
enum Carrier {
    Switch(Switch),
    Relay(Relay),
}

#[derive(Debug)]
struct Inner {
    carrier: Carrier,
    spaces: Vec<Space>,
    wire: Wire,
    note: Option<String>,
    shape: Shape,
    ports: AtomicU16,
}

/// Nodes on one machine; see the [crate](crate). A clone is another handle of the same bed. The bed ends with its last
/// handle and the last program in its nodes.
#[derive(Clone, Debug)]
pub struct Bed(Arc<Inner>);

impl Bed {
    /// Begins a bed with this many nodes.
    pub fn builder(nodes: usize) -> Builder {
        Builder {
            nodes,
            shape: Shape::default(),
            seed: None,
            choice: WireChoice::default(),
            user_namespace: false,
        }
    }

    /// How many nodes it has.
    pub fn nodes(&self) -> usize {
        self.0.spaces.len()
    }

    /// The address of a node.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn address(&self, node: usize) -> Ipv4Addr {
        assert!(node < self.nodes(), "there is no node {node}");
        address(node)
    }

    /// A port for a server in one of the nodes. Each call returns another one, and no other program is in the nodes.
    pub fn port(&self) -> u16 {
        FIRST_PORT + self.0.ports.fetch_add(1, Relaxed) % PORTS
    }

    /// Makes the processes of `command` run in a node. Other `pre_exec` functions that are added later run after that.
    /// The command holds the node's namespace as long as it exists.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn enter(&self, node: usize, command: &mut Command) {
        Entry::Enter(self.0.spaces[node].clone()).precede(command);
    }

    /// Cuts the link of a node. From now on nothing passes, in either direction.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn cut(&self, node: usize) -> Result<(), BedError> {
        self.set_link(node, false)
    }

    /// Mends a link that was cut.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn mend(&self, node: usize) -> Result<(), BedError> {
        self.set_link(node, true)
    }

    fn set_link(&self, node: usize, up: bool) -> Result<(), BedError> {
        assert!(node < self.nodes(), "there is no node {node}");
        match &self.0.carrier {
            Carrier::Switch(switch) => switch.set_link(node, up),
            Carrier::Relay(relay) => {
                relay.set_link(node, up);
                Ok(())
            }
        }
    }

    /// The transport of packets.
    pub fn wire(&self) -> Wire {
        self.0.wire
    }

    /// The relay's counts so far; `None` if there is no relay.
    pub fn traffic(&self) -> Option<Traffic> {
        match &self.0.carrier {
            Carrier::Switch(_) => None,
            Carrier::Relay(relay) => Some(relay.traffic()),
        }
    }
}

/// Describes the bed in one line.
impl fmt::Display for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { shape, note, .. } = &*self.0;
        let how = match self.wire() {
            Wire::Bridge => "a bridge of the kernel",
            Wire::Netem => "netem of the kernel",
            Wire::Relay => "a relay in user space",
        };
        let many = if self.nodes() == 1 { "" } else { "s" };
        write!(
            f,
            "{} network namespace{many}, {how}: {shape}",
            self.nodes()
        )?;
        match note {
            Some(note) => write!(f, " (not by the kernel: {note})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        for builder in [
            Bed::builder(0),
            Bed::builder(MAX_NODES + 1),
            Bed::builder(2).loss(1.5),
            Bed::builder(2).loss(f64::NAN),
            Bed::builder(2).seed(1).wire(WireChoice::Kernel),
        ] {
            let error = builder.build().unwrap_err();
            assert!(matches!(error, BedError::Invalid(_)), "{error}");
            assert!(!error.is_missing());
        }
    }
}
