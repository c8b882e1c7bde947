//! Networks for tests: a libfabric without hardware that behaves as cxi does, and a network in memory ([`wire`]).
//!
//! # Model
//!
//! [`library`] gives the functions of a provider called `cxi`. It knows [`Card`]s by their names: an endpoint that is opened
//! at the address [`Card::name`] is one of that card. All endpoints of a card, of one process, reach each other. A
//! card's thread is its hardware. It sees stores to the pages of counters (which fault, or are plain memory), and fires
//! deferred works whose counters have come far enough. It carries out one operation after the other, *in any order*,
//! drawn from a seed. So operations that no counter orders soon come out of order.
//!
//! It has what [`tidegate_ffi::fabric`] calls for writes, reads, atomic adds, deferred works, and counters with pages and
//! write-back. Like the real provider, it has no messages, and nothing to wait on.
//!
//! # Failure
//!
//! [`Config`] says what goes wrong. As with the real provider, an operation with an unknown key fails, and no success is
//! counted. Some requests are errors of the user: to touch memory that is not registered, or to close an object
//! that works still need. The card answers them with the error that a provider has for them, and lists them in
//! [`Card::complaints`] for the test.

mod card;
mod config;
mod hardware;
mod objects;
mod plain;
mod register;
mod strike;
pub mod wire;

pub use card::Card;
pub use config::Config;
pub use hardware::Kind;
pub use objects::library;

/// Whether counters can have pages here that are not plain memory.
pub const PAGES: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));
