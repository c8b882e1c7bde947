//! Which process this is, and what `fork` must not copy.
//!
//! # Model
//!
//! `fork` copies a process with one of its threads, and some crates offer it as a safe function. The copy has every
//! value, so it also has those that say "this memory is mine alone". It has none of the threads that execute streams and
//! watch the peers. Two things keep this sound:
//!
//! - A value that needs those threads, or that speaks to peers, remembers its [`Process`], and refuses work in every
//!   other one with [`Forked`]. When such a value is dropped in a child, it is forgotten: locks may be held by threads that
//!   are not there, and the peers must not hear of it.
//! - Memory that other processes map is [`Unforked`]: a child has pages at its addresses that nobody can read or write.
//!
//! Programs that `std::process::Command` starts are no copies: they keep nothing of the process.
//!
//! # Failure
//!
//! A raw `clone` of which the C library does not hear is not noticed here. The child has no shared memory, but nothing
//! reserves the addresses: it must not use values of the parent.

mod forked;
mod this;

pub use forked::Forked;
pub use this::{Process, Unforked};
