//! A network in memory: its endpoints, its registrations, and its random numbers.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_hal::nic::{Keep, NicError};

use tidegate_fabric::wire::Event;

use super::chair::Chair;

/// How often something goes wrong, in a thousand, and how late operations are.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The seed.
    pub seed: u64,
    /// An operation is refused for now.
    pub full: u32,
    /// An operation fails, and nothing of it was done.
    pub fail: u32,
    /// A signal and its data never arrive, although the operation is reported as done. (Of other notices, only the
    /// notice is lost.)
    pub lose: u32,
    /// The posting rank dies: its endpoint does nothing any more, and nobody is told.
    pub die: u32,
    /// The most polls that an operation waits for.
    pub delay: u32,
}

/// A network.
pub(super) struct State {
    /// A name that no other net has, in this process or another: a number of its own, and a random one.
    pub(super) id: [u64; 2],
    pub(super) ranks: usize,
    pub(super) faults: Faults,
    pub(super) random: u64,
    /// All endpoints that there ever were.
    pub(super) ends: Vec<Endpoint>,
    pub(super) regions: HashMap<u64, Region>,
    pub(super) next_region: u64,
    /// The bytes of writes.
    pub(super) carried: u64,
}

/// The state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    /// Its polls fail.
    Broken,
    /// Its rank has died: it does nothing any more, and nobody is told.
    Dead,
    /// It was dropped, and nothing arrives there.
    Gone,
}

/// An endpoint.
pub(super) struct Endpoint {
    /// Its rank.
    pub(super) of: usize,
    /// The endpoint from [`Net::wire`](super::Net::wire): this one, or the one whose twin this is.
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
    /// The name by which others know an endpoint or a region.
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

    /// The last endpoint from [`Net::wire`](super::Net::wire) for a rank, and its twins, in the order in which they
    /// were opened.
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
