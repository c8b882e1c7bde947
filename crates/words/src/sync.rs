//! The atomics and the sleeping that the protocol is built on: the machine's, or the model checker's.
//!
//! Nothing else differs between the two, so that what is checked is what runs. Other crates use the same ones where
//! they have protocols of their own to be checked.

#[cfg(not(loom))]
mod machine;
#[cfg(loom)]
pub mod model;

#[cfg(not(loom))]
pub use machine::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use machine::{Futex, pause, yield_now};

#[cfg(loom)]
pub use model::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence};
#[cfg(loom)]
pub(crate) use model::{Futex, pause, yield_now};
