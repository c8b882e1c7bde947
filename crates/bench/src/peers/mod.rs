//! The same exchange by other libraries, in the same run.
//!
//! # Model
//!
//! A [`Peer`] is a program that does what Faces does (the exchange, whole shares, or a pair) with another library;
//! `crates/bench/peers` has their sources, and says what each of them measures. [`Peers::find`] looks for the programs
//! that were asked for before a rank is started, and builds them if they are missing and their sources are not.
//! [`Peers::run`] runs them one after the other once all ranks have ended, so that the GPUs are free, and makes
//! [`Row`](crate::results::Row)s of what they print.
//!
//! | module | holds |
//! |---|---|
//! | `calls` | which programs are run with which options: the command line of Faces, in their words |
//! | `place` | where they are, and how they are built |
//! | `process` | a program with a limit to its time |
//! | `lines` | their rows |
//! | `run` | one after the other |
//!
//! Each library is run in its best form: with the environment, and in as many calls, as that takes. A library whose
//! failure ends its program is called once for each form, so that one failure does not take the others along.
//!
//! # Failures
//!
//! [`PeersError`], before anything is run, where neither programs nor sources are found. Everything later is a failed
//! row: a peer that could not be built, one that ends with an error, takes too long, prints nothing, or gets wrong
//! data.

mod calls;
mod error;
mod lines;
mod peer;
mod place;
mod process;
mod run;
#[cfg(test)]
mod tests;

pub use error::PeersError;
pub use peer::Peer;
pub use place::Peers;
