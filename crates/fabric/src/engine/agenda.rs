//! A queue, and what is to be done for it.

use std::sync::{Arc, Mutex};

use super::chained::Chained;
use super::doubt::Doubt;
use super::firing::Firing;
use super::queue::Queue;
use crate::wire::Wire;

/// A queue, and how far its firing is.
pub(super) struct Agenda<W: Wire> {
    pub(super) queue: Arc<Queue>,
    pub(super) firing: Option<Firing>,
    pub(super) doubt: Doubt<W>,
    /// Instead of firings, where hardware has them.
    pub(super) chained: Option<Arc<Mutex<Chained<W>>>>,
    /// Whether hardware has something to do.
    pub(super) busy: bool,
    /// Whether it is among the ready ones.
    pub(super) ready: bool,
    /// It is to give up, when nothing of it is under way or in doubt.
    pub(super) fails: bool,
}

impl<W: Wire> Agenda<W> {
    /// Whether a signal is in doubt that somebody may wait for.
    pub(super) fn is_in_doubt(&self) -> bool {
        let doubt = &self.doubt;
        let is_over = self.queue.departure().is_over();
        let open = !doubt.lost && !is_over && !self.queue.is_abandoned();
        doubt.come < doubt.count && open
    }
}
