//! A libfabric without hardware that does what cxi does, for tests.
//!
//! # Model
//!
//! [`library`] gives the functions of a provider called `cxi` that knows [`Card`]s by their names: who asks for an
//! endpoint at the address [`Card::name`] gets one of that card. All endpoints of a card, of one process, reach each
//! other. A card's thread is its hardware: it sees stores to the pages of counters (which fault, or are plain memory),
//! fires deferred works whose counters have come far enough, and carries out one operation after the other, *in any
//! order*, drawn from a seed; so what is not ordered by counters comes out of order soon.
//!
//! It has what [`tidegate_ffi::fabric`] calls for writes, reads, atomic adds, deferred works, counters with pages and
//! write-back; no messages, and nothing to wait on, as the real one.
//!
//! # Failure
//!
//! [`Config`] says what goes wrong. An operation with a key that is not there fails, as with the real one: no success
//! is counted. What the card must not be asked (to touch memory that is not registered for it, to close what works
//! still need) it answers with the error that a provider has for it, and [`Card::complaints`] has it for the test to
//! see.

mod card;
mod config;
mod hardware;
mod lock;
mod objects;
mod plain;
mod register;
mod strike;

pub use card::Card;
pub use config::Config;
pub use hardware::Kind;
pub use objects::library;

/// Whether counters can have pages here that are not plain memory.
pub const PAGES: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));
