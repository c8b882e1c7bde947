//! Registered memory of peers, and the description that they send of it.

use serde::{Deserialize, Serialize};

use crate::wire::Wire;

/// A peer's registered memory.
pub(crate) struct RemoteRegion<W: Wire> {
    /// The number of the registration there, for notices.
    pub(crate) number: u32,
    pub(crate) remote: W::Remote,
    /// The same memory as each further rail knows it, if both ends have that rail.
    pub(crate) rails: Vec<W::Remote>,
}

impl<W: Wire> RemoteRegion<W> {
    /// The memory as this rail knows it; 0 is the engine's own endpoint.
    pub(crate) fn by(&self, rail: usize) -> &W::Remote {
        match rail {
            0 => &self.remote,
            rail => &self.rails[rail - 1],
        }
    }
}

/// The description of registered memory that a peer needs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) number: u32,
    /// One key for each endpoint that peers write to.
    pub(crate) wires: Vec<Vec<u8>>,
}
