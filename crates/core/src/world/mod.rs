//! The job: its ranks, and what happens to them.
//!
//! # Model
//!
//! A [`World`] is one rank's view of the job: its number, the size, the device, and the control plane. It is cheap to clone;
//! the rank leaves the job when the last clone (streams and windows hold some) is gone, and its NIC has sent what was rung for.
//!
//! # Failure
//!
//! When a rank dies, every word that another rank waits on in any window is poisoned, so that every wait which would
//! depend on it ends; the error names the dead rank. When a rank leaves in good order, only waits for that very rank
//! end, unless what they wait for has been done already. Dropping an epoch half-done, or a limit that passes, *revokes*
//! a window on all ranks.
//!
//! A child that is made by `fork` has a copy of the world and none of its threads: every call there is
//! [`Error::Forked`], and a drop is silent.
//!
//! Rank 0 carries the control plane. So when its program has ended without an error, its process waits until all other
//! ranks have left the job. After a second it says so; from then on SIGINT, SIGTERM, SIGHUP and SIGQUIT end it, also where
//! the program handles them. No other thread of it can end it then, because [`std::process::exit`] does not return there.

mod agreement;
mod events;
mod inner;
mod join;
mod known;
mod meet;
mod not_here;
mod overseen;
mod progress;
mod streams;
mod watched;

pub(crate) use agreement::{Agreement, Brought, Which};
pub(crate) use inner::Inner;
pub use inner::World;
pub(crate) use watched::Watched;

#[cfg(doc)]
use crate::error::Error;
