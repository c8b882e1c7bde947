//! MPI as the transport of windows: typed epochs over `MPI_Put` and related calls, on every machine with an MPI.
//!
//! # Model
//!
//! [`world`] makes a world over a *bus*, and [`join`] makes the bus of a communicator ([`tidegate_hal::far`]): a
//! [`Host`] device whose streams reach peers by windows of MPI, and a control plane that carries the keys to the peers'
//! memory. Everything above is as without MPI: windows, epochs, graphs, barriers.
//!
//! - **Near and far.** Ranks are *near* if they can share memory, according to both MPI (`MPI_COMM_TYPE_SHARED`) and
//!   the control plane (one node). Their memory comes from `MPI_Win_allocate_shared`, and `MPI_Win_shared_query` tells
//!   its address. Streams put, get and signal by loads, stores and processor atomics. All other ranks are *far*.
//! - **Memory** comes from segments. A segment is a window of MPI that all ranks make together when one of them has no
//!   room, so no heap has to be sized by hand (`segment.rs`). Each segment is locked for good (`MPI_Win_lock_all`), so
//!   all targets are passive.
//! - **Data** for far ranks goes by `MPI_Put`, `MPI_Get`, `MPI_Accumulate` and related calls. "`MPI_WIN_FLUSH`
//!   completes all outstanding RMA operations initiated by the calling process to the target rank on the specified
//!   window. The operations are completed both at the origin and at the target" (MPI-3.1, 11.5.4). So with any MPI, a
//!   signal that is given after the flush comes after the data.
//! - **Signals** to far ranks have two forms. [`Form::Words`] is an `MPI_Accumulate` to a mailbox beside the word. The
//!   waiter polls the mailbox, and adds to the word itself. So a word is only changed by processor atomics of its own
//!   node, and a mailbox only by MPI. [`Form::Messages`] is a message. The thread that drives MPI receives it, and adds
//!   to the word. Small data is sent in the message, and needs no put. [`Form::Measured`] takes the form that is faster
//!   between nodes here.
//! - **Memory model.** Windows must be *unified* (`MPI_WIN_UNIFIED`): "public and private copies are identical", and an
//!   update by MPI becomes visible to loads of the owner without further calls (11.4), at the latest with
//!   `MPI_WIN_SYNC` (11.7). It is called after a signal was found and before the word is added to. It is also called
//!   before a signal is given, so that peers' gets see the stores of streams. Between near ranks the signal itself is
//!   the barrier.
//! - **Progress** needs the host. A thread that waits drives MPI (it tests a receive that is always posted), yields,
//!   and naps after a while, for at most 1 ms. While nobody waits, an *agent* thread drives MPI. So if an MPI's
//!   one-sided operations need the target's help, they get it within 1 ms. If all ranks are near, nothing comes by MPI,
//!   and nobody drives it.
//! - **Threads.** Streams, the agent and the program call MPI, so it must have been initialised with
//!   `MPI_THREAD_MULTIPLE`. This library's own calls take turns under one lock, and none waits for a peer's *program*
//!   under it.
//! - **Atomics** of a window are all made by processors if all ranks are near. Otherwise all are made by MPI, even
//!   those of near ranks, and of a rank on its own memory, because nothing else is atomic with MPI's operations.
//!   Reductions that MPI computes wrongly are found when the ranks meet, and refused (`reductions.rs`). If several
//!   origins update one element in one epoch, MPI promises atomicity only for one operation (`same_op_no_op`, its
//!   default). The known MPIs keep it for all, since they lock. MPI does not compare floats, so a compare-and-swap of
//!   floats uses integers of the same size. The minimum and maximum with a NaN depend on MPI.
//!
//! # Failure
//!
//! Every return code is checked. If MPI refuses a call, the bus fails for good. The others are told, so their buses
//! fail, too, and streams end with the error. MPI may still read or write memory then, so regions that are dropped from
//! then on are leaked, and not used again.
//!
//! If a rank dies, the control plane notices it, if MPI lets the others live (`mpirun` usually ends the job). Waits
//! end, since none waits inside of MPI. Only operations to a far rank can block (`MPI_Win_flush`, and with Open MPI an
//! accumulate), and so can making memory, which all ranks do together. How long a dead rank, or one without a
//! processor, delays these depends on MPI. Streams that wait for near ranks go on meanwhile.
//!
//! When `MPI_Finalize` is called, all buses close before MPI ends. Waits then end with an error that says so, and
//! memory stays mapped. (MPICH 4.0 may abort then if a thread is inside of it. So there, drop worlds with far ranks
//! before `MPI_Finalize`. If all ranks are near, no thread is inside.)
//!
//! If an MPI cannot make windows with `MPI_THREAD_MULTIPLE`, joining returns a typed error. Open MPI 4 crashes in
//! `MPI_Compare_and_swap` if ranks of one node reach each other as far ranks, so this is refused.

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
