//! Registered memory of peers, and the description that they send of it.

use serde::{Deserialize, Serialize};

use crate::wire::Wire;

/// A peer's registered memory.
pub(crate) struct RemoteRegion<W: Wire> {
    /// Its number there, for notices.
    pub(crate) number: u32,
    pub(crate) remote: W::Remote,
    /// The same by each further rail that both ends have.
    pub(crate) rails: Vec<W::Remote>,
}

impl<W: Wire> RemoteRegion<W> {
    /// What it is to this rail; 0 is the engine's own endpoint.
    pub(crate) fn by(&self, rail: usize) -> &W::Remote {
        match rail {
            0 => &self.remote,
            rail => &self.rails[rail - 1],
        }
    }
}

/// What a peer needs to know of registered memory.
#[derive(Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) number: u32,
    /// For each endpoint that peers write to.
    pub(crate) wires: Vec<Vec<u8>>,
}
