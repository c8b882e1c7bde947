//! MPI as the transport of windows: typed epochs over `MPI_Put` and its like, on every machine that has an MPI.
//!
//! # Model
//!
//! [`world`] makes a world over a *bus*, and [`join`] the bus of a communicator ([`tidegate_hal::far`]): a [`Host`] device whose streams reach peers by
//! windows of MPI, and a control plane that carries the keys to their memory. Everything above is as without MPI:
//! windows, epochs, graphs, barriers.
//!
//! - **Near and far.** Ranks that can have memory in common, by MPI's word (`MPI_COMM_TYPE_SHARED`) and by the control
//!   plane's (a node), are *near*: their memory comes from `MPI_Win_allocate_shared`, `MPI_Win_shared_query` tells where
//!   it is, and streams put, get and signal by loads, stores and processor atomics. All others are *far*.
//! - **Memory** comes from segments, windows of MPI that all ranks make together when one of them has no room; no heap
//!   is sized by hand (`segment.rs`). Each is locked for good (`MPI_Win_lock_all`): all targets are passive.
//! - **Data** for far ranks goes by `MPI_Put`, `MPI_Get`, `MPI_Accumulate` and its like. "`MPI_WIN_FLUSH` completes all
//!   outstanding RMA operations initiated by the calling process to the target rank on the specified window. The
//!   operations are completed both at the origin and at the target" (MPI-3.1, 11.5.4): so a signal that is given after
//!   it comes after the data, with any MPI.
//! - **Signals** to far ranks have two forms. [`Form::Words`]: an `MPI_Accumulate` to a mailbox beside the word, which
//!   the waiter polls and adds to the word itself: all that is done to a word is done by processor atomics of its own
//!   node, all that is done to a mailbox by MPI. [`Form::Messages`]: a message, which whoever turns MPI adds to the
//!   word; small data goes along with it, and needs no put. [`Form::Measured`] takes the one that is faster between
//!   nodes here.
//! - **Memory model.** Windows must be *unified* (`MPI_WIN_UNIFIED`): "public and private copies are identical", and an
//!   update by MPI becomes visible to loads of the owner without further calls (11.4), at the latest with
//!   `MPI_WIN_SYNC` (11.7). That is called when a signal was found and before the word is added to; and before a signal
//!   is given, so that peers' gets see what streams have stored. Between near ranks the signal itself is the barrier.
//! - **Progress** is the host's. Whoever waits turns MPI (tests a receive that is always posted), yields, and naps
//!   after a while, 1 ms at most. While nobody waits, an *agent* thread does: MPIs whose one-sided operations need the
//!   target's help get it within 1 ms. Where all ranks are near, nothing comes by MPI, and nobody turns it.
//! - **Threads.** Streams, agent and program call MPI, so it must have been initialised with `MPI_THREAD_MULTIPLE`.
//!   This library's own calls take turns under one lock; none waits for a peer's *program* under it.
//! - **Atomics** of a window are all made by processors, where all ranks are near; else all by MPI, those of near ranks
//!   and of a rank on its own memory, too: nothing else is atomic with what MPI does. What MPI reduces wrongly is found
//!   when ranks meet, and refused (`reductions.rs`). Where several origins update one element in one epoch, MPI promises
//!   atomicity for one operation and no other beside it (`same_op_no_op`, its default); the known MPIs keep it for all,
//!   since they lock. MPI compares no floats: a compare-and-swap of floats is one of integers as wide. What the least and
//!   greatest of a NaN is, is MPI's affair.
//!
//! # Failure
//!
//! Every return code is looked at. What MPI refuses fails the bus for good, and with it those of all ranks, since the
//! others are told: streams end with the error. What MPI still reads or writes then, nobody knows: memory of regions that
//! are dropped from then on is given up, not used again. A rank that dies is noticed by the control plane, if MPI lets the others
//! live (`mpirun` usually ends the job); waits end, since none waits inside of MPI. Only what is under way to a far rank
//! can (`MPI_Win_flush`, and with Open MPI an accumulate), and the making of memory, which all ranks do together: how long
//! a dead rank, or one whose processor is taken, keeps them, is MPI's affair. Streams that wait for near ranks go on
//! meanwhile. When `MPI_Finalize` is called, all buses close before MPI does: waits then end with an error that
//! says so, and memory stays where it is. (MPICH 4.0 may abort then if a thread is inside of it: worlds with far ranks are
//! to go before `MPI_Finalize` there. Where all ranks are near, no thread is.)
//!
//! An MPI that makes no windows here for `MPI_THREAD_MULTIPLE` says so when the ranks meet: a typed error. Open MPI 4
//! crashes in `MPI_Compare_and_swap` where ranks of one node reach each other as far ones: there, it is refused.

mod agent;
mod bus;
mod call;
mod choose;
mod control;
mod error;
mod finalize;
mod inner;
mod join;
mod machine;
mod messages;
mod names;
mod notice;
mod options;
mod pool;
mod ranks;
mod reductions;
mod segment;
mod tell;

pub use error::JoinError;
pub use join::{join, world};
pub use options::{Form, Options};
