//! What each rank finds out about itself.

use super::reach::Clock;
use crate::info::{self, SharedGpu, Told};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use tidegate_hal::variables::ADDRESS;

/// What a rank knows before it has a device and a NIC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Here {
    /// The processors that it may use, as a list of ranges.
    pub(super) processors: String,
    /// The limit of locked memory, if there is one.
    pub(super) locked: Option<u64>,
    /// The limit of descriptors, if there is one, and how far it can be raised.
    pub(super) descriptors: (Option<u64>, Option<u64>),
    /// How many descriptors are in use.
    pub(super) used: u64,
    /// The value of `TIDEGATE_ADDRESS`, if it is set.
    pub(super) address: Option<String>,
    /// Why no socket can be bound to that address.
    pub(super) foreign: Option<String>,
    /// What is wrong with its variables.
    pub(super) complaints: Vec<String>,
}

impl Here {
    pub(super) fn look() -> Self {
        let descriptors = getrlimit(Resource::Nofile);
        let address = std::env::var(ADDRESS.name).ok();
        let address = address.filter(|value| !value.is_empty());
        let foreign = address.as_ref().and_then(|value| {
            // What is no address at all is among the complaints.
            let ip: IpAddr = value.parse().ok()?;
            UdpSocket::bind((ip, 0))
                .err()
                .map(|error| error.to_string())
        });
        Self {
            processors: info::place().0,
            locked: getrlimit(Resource::Memlock).current,
            descriptors: (descriptors.current, descriptors.maximum),
            used: std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64),
            address,
            foreign,
            complaints: info::wrong_here(),
        }
    }

    /// The address at which its NIC will be.
    pub(super) fn ip(&self) -> IpAddr {
        let set = self.address.as_ref().and_then(|value| value.parse().ok());
        set.unwrap_or(Ipv4Addr::LOCALHOST.into())
    }
}

/// A call of one rank at the address of another, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) answer: Result<Clock, String>,
}

/// What a rank knows when it has made a world.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Joined {
    pub(super) told: Told,
    pub(super) gpu: Option<SharedGpu>,
}
