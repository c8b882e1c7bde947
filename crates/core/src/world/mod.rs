//! The job: its ranks, and what happens when they end.
//!
//! # Model
//!
//! A [`World`] is one rank's view of the job: its number, the size, the device, and the control plane. It is cheap to
//! clone. The rank leaves the job when the last clone is gone (streams and windows hold some), and its NIC has sent
//! everything that was rung for.
//!
//! # Failure
//!
//! When a rank dies, every word that another rank waits on is poisoned, in each window of the job and of the teams that
//! the rank was in. So every wait that could depend on the dead rank ends, with an error that names it. Windows of teams
//! without the rank go on. When a rank leaves in good order, only waits for that rank end, unless they are already
//! satisfied. Dropping an epoch before it is complete, or exceeding a limit, *revokes* a window on all ranks that have it.
//!
//! A child process made by `fork` has a copy of the world, but none of its threads. There, every call returns
//! [`Error::Forked`], and drops have no effect.
//!
//! Rank 0 carries the control plane. So when its program has ended without an error, its process waits until all other
//! ranks have left the job. After a second it says so; from then on SIGINT, SIGTERM, SIGHUP and SIGQUIT end it, even if
//! the program handles them. No other thread of the process can end it during that wait, because [`std::process::exit`]
//! does not return there.

mod agreement;
mod events;
mod inner;
mod join;
mod joined;
mod known;
mod making;
mod meet;
mod members;
mod not_here;
mod overseen;
mod progress;
mod roster;
mod streams;
mod team;
mod watched;

pub(crate) use agreement::{Agreement, Trouble, Which};
pub(crate) use inner::Inner;
pub use inner::World;
pub(crate) use roster::Roster;
pub use team::Team;
pub(crate) use watched::Watched;

#[cfg(doc)]
use crate::error::Error;
