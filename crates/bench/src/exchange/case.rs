//! What is measured.

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
    /// Messages (or exchanges) one after the other in an epoch: what a time is divided by.
    pub(super) fn hops(self) -> u64 {
        match self {
            Order::Together => 1,
            Order::Turns => 2,
        }
    }
}

/// What is measured, on one rank.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// What this rank sends and receives.
    pub pattern: Pattern,
    /// The order in which the ranks send.
    pub order: Order,
    /// How many epochs are recorded in one graph; 0 if none are.
    pub recorded: u64,
    /// Buffers of a slot.
    pub buffers: Buffers,
    /// Builds, runs, and epochs of a run: a multiple of `recorded`.
    pub counts: Counts,
    /// What the row says besides.
    pub setting: Setting,
    /// So many words of each message are sent, as the stream counts them: `put_counted`.
    pub counted: Option<usize>,
    /// Sends something else than it should: for tests that want a wrong result.
    pub spoil: bool,
}
