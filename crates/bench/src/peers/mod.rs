//! The same exchange by other libraries, in the same run.
//!
//! # Model
//!
//! A [`Peer`] is a program that does the work of Faces (the exchange, whole shares, or a pair) with another library. Their
//! sources are in `crates/bench/peers`, with a page that says what each of them measures. [`Peers::find`] looks for the
//! programs before a rank is started, and builds the missing ones from their sources. Once all ranks have ended and the
//! GPUs are free, [`Peers::run`] runs them one after the other, and makes [`Row`](crate::results::Row)s of their output.
//!
//! | module | holds |
//! |---|---|
//! | `calls` | which programs are run with which options: the command line of Faces, in their words |
//! | `place` | where they are, and how they are built |
//! | `process` | a program with a limit to its time |
//! | `lines` | their rows |
//! | `run` | one after the other |
//!
//! Each library runs in its best form, with the environment and in as many calls as that takes. A library whose failure
//! ends its program is called once for each form, so one failure does not lose the other forms.
//!
//! # Failures
//!
//! [`PeersError`], before anything runs, if neither programs nor sources are found. Every later failure is a failed row: a
//! peer that could not be built, ends with an error, takes too long, prints nothing, or gets wrong data.

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
