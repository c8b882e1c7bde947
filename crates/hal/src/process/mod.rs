//! Which process this is, and what `fork` must not copy.
//!
//! # Model
//!
//! `fork` copies a process with only one of its threads, and some crates offer it as a safe function. The copy has
//! every value, including those that claim memory as their own. It has none of the threads that execute streams and
//! watch the peers. Two things keep this sound:
//!
//! - A value that needs those threads, or that talks to peers, remembers its [`Process`]. In every other process it
//!   refuses work with [`Forked`]. Dropping it in a child does nothing: a lock may belong to a thread that does not
//!   exist there, and the peers must not hear of it.
//! - Memory that other processes map is [`Unforked`]: at its addresses, a child has pages that cannot be read or
//!   written.
//!
//! Programs that `std::process::Command` starts are not copies. They keep nothing of the process.
//!
//! # Failure
//!
//! A raw `clone` that bypasses the C library is not noticed. The child then has no shared memory, but nothing reserves
//! the addresses either: it must not use values of its parent.

mod forked;
pub mod memory;
mod this;

pub use forked::Forked;
pub use this::{Process, Unforked};
