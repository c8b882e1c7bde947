//! The atomics and the sleeping on which the protocol is built: those of the machine, or those of the model checker.
//!
//! Nothing else differs, so the code that is checked is the code that runs. Other crates use this module for protocols
//! of their own that are checked.

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
