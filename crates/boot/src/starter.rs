//! What a starter of jobs shares with the ranks: the names of variables, their limits, and how an address, a secret or a
//! list of ranks is written. It is for `tidegate-cli`, and no part of the interface.

pub use crate::inherit::{LISTEN_FD, announce};
pub use crate::loopback::loopback;
pub use crate::process::in_words;
pub use crate::secret::{hex, random};
pub use crate::variables::{ADDRESS, DEVICE, NODE, RANKS_HERE, SECRET, address_of, number};
pub use crate::wire::MAX_RANKS;
