//! Definitions that launchers and ranks share: names of variables and their limits, and the written form of addresses,
//! secrets and lists of ranks. They are for `tidegate-cli`, and not part of the interface.

pub use crate::ends::{ENDS_FD, Ends};
pub use crate::inherit::{LISTEN_FD, announce};
pub use crate::launchers::listen_everywhere;
pub use crate::loopback::loopback;
pub use crate::process::in_words;
pub use crate::ready::Awaited;
pub use crate::secret::{hex, random};
pub use crate::variables::{ADDRESS, DEVICE, NODE, RANKS_HERE, SECRET, address_of, within};
pub use crate::wire::MAX_RANKS;
