//! A network in memory: its endpoints, what is registered, and what is drawn.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_hal::nic::{Keep, NicError};

use tidegate_fabric::wire::Event;

use super::chair::Chair;

/// How often something goes wrong, in a thousand; and how late things are.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// What decides.
    pub seed: u64,
    /// An operation is not taken now.
    pub full: u32,
    /// An operation fails; nothing of it was done.
    pub fail: u32,
    /// A signal never comes, nor does its data, though it is done. (Of other notices, the notice alone.)
    pub lose: u32,
    /// The rank that posts dies: nothing of its endpoint happens any more, and nobody is told.
    pub die: u32,
    /// The most polls that an operation waits for.
    pub delay: u32,
}

/// A network.
pub(super) struct State {
    /// No other net's, in this process or another: a number of its own, and a random one.
    pub(super) id: [u64; 2],
    pub(super) ranks: usize,
    pub(super) faults: Faults,
    pub(super) random: u64,
    /// All that there ever were.
    pub(super) ends: Vec<Endpoint>,
    pub(super) regions: HashMap<u64, Region>,
    pub(super) next_region: u64,
}

/// What has become of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    /// Its polls fail.
    Broken,
    /// Its rank has died: nothing of it happens any more, and nobody is told.
    Dead,
    /// Nobody has it any more: nothing comes there.
    Gone,
}

/// An endpoint.
pub(super) struct Endpoint {
    /// Whose it is.
    pub(super) of: usize,
    /// The one that [`Net::wire`](super::Net::wire) gave: this one, or the one that this one is besides.
    pub(super) first: usize,
    pub(super) health: Health,
    pub(super) taken: usize,
    pub(super) arrived: Vec<Event>,
    pub(super) chair: Arc<Chair>,
}

impl Endpoint {
    pub(super) fn of(rank: usize, first: usize) -> Self {
        Endpoint {
            of: rank,
            first,
            health: Health::Well,
            taken: 0,
            arrived: Vec::new(),
            chair: Arc::default(),
        }
    }
}

/// Registered memory.
pub(super) struct Region {
    pub(super) base: usize,
    pub(super) bytes: usize,
    pub(super) _keep: Keep,
}

impl State {
    /// What tells others of an endpoint or a region.
    pub(super) fn label(&self, number: u64) -> Vec<u8> {
        let [net, random] = self.id;
        [net, random, number].map(u64::to_le_bytes).concat()
    }

    /// The number in a label of this net.
    pub(super) fn number(&self, label: &[u8]) -> Result<u64, NicError> {
        let (net, number) = label.split_at_checked(16).unwrap_or_default();
        match number.try_into() {
            Ok(number) if net == &self.label(0)[..16] => Ok(u64::from_le_bytes(number)),
            _ => Err(NicError::BadKey(
                "it is of another net in memory: the ranks of a job share one".into(),
            )),
        }
    }

    /// What [`Net::wire`](super::Net::wire) gave last for a rank, and what that has besides, in the order in which they were opened.
    pub(super) fn of(&self, rank: usize) -> impl Iterator<Item = usize> {
        let firsts = |end: &usize| self.ends[*end].first == *end && self.ends[*end].of == rank;
        let last = (0..self.ends.len()).rfind(firsts);
        (0..self.ends.len()).filter(move |end| Some(self.ends[*end].first) == last)
    }

    /// A number below `below`.
    pub(super) fn draw(&mut self, below: u32) -> u32 {
        // xorshift64*.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let mixed = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((mixed * u64::from(below)) >> 32) as u32
    }

    pub(super) fn happens(&mut self, often: u32) -> bool {
        often > 0 && self.draw(1000) < often
    }
}
