//! A case: messages, and how they are enqueued.

use super::pattern::Pattern;
use crate::faces::params::Counts;
use crate::results::Setting;
use tidegate_core::window::Buffers;

/// The order in which the ranks send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// All at a time.
    Together,
    /// One after the other: a ping and its answer. Two ranks.
    Turns,
}

impl Order {
    /// Messages (or exchanges) one after the other in an epoch; a time is divided by it.
    pub(super) fn hops(self) -> u64 {
        match self {
            Order::Together => 1,
            Order::Turns => 2,
        }
    }
}

/// One measurement, on one rank.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// The messages of this rank.
    pub pattern: Pattern,
    /// The order in which the ranks send.
    pub order: Order,
    /// How many epochs are recorded in one graph; 0 if none are.
    pub recorded: u64,
    /// Buffers of a slot.
    pub buffers: Buffers,
    /// Builds, runs, and epochs of a run: a multiple of `recorded`.
    pub counts: Counts,
    /// The setting of the row.
    pub setting: Setting,
    /// How many words of each message are sent by `put_counted`, if that is used.
    pub counted: Option<usize>,
    /// Sends wrong words, for tests that want a wrong result.
    pub spoil: bool,
}
