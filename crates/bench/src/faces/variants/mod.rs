//! How the messages travel: the variants, over this library.
//!
//! # Model
//!
//! [`run`] measures one [`Variant`](super::params::Variant) on one rank. Every variant does the same share with the same
//! kernels. They differ in the thread or stream that makes progress, and in how often the host synchronises:
//!
//! | variant | a share | synchronisations |
//! |---|---|---|
//! | [`St`](super::params::Variant::St) | pack kernel, [`exchange`](tidegate_core::window::exchange) (post, puts, complete and wait as one work item), unpack kernel, all enqueued on one stream | one after all shares |
//! | [`StStrided`](super::params::Variant::StStrided) | the same, without the pack kernel: the puts gather out of the block | one after all shares |
//! | [`StSeparate`](super::params::Variant::StSeparate) | post, pack kernel, an epoch for each message, wait, unpack kernel: a kernel a message, as the paper's separate kernels are | one after all shares |
//! | [`StGraph`](super::params::Variant::StGraph), [`StStridedGraph`](super::params::Variant::StStridedGraph) | the share of `St` or `StStrided`, recorded once | one after all shares |
//! | [`Device`](super::params::Variant::Device), [`DeviceGraph`](super::params::Variant::DeviceGraph) | one kernel gathers, puts straight to the neighbours' slots, and completes them; before it the wait for their exposures, behind it post and wait as one work item, unpack kernel | one after all shares |
//! | [`DevicePersistent`](super::params::Variant::DevicePersistent) | all shares in one kernel, which owns both halves: it gathers, puts, completes, waits and unpacks | one after all shares |
//! | [`Rma`](super::params::Variant::Rma) | kernels on a stream; the calling thread waits for it, then posts, puts, completes, and waits until all has come | before and after the messages |
//! | [`P2p`](super::params::Variant::P2p) | as `Rma`, with an epoch of its own for each message | as `Rma` |
//! | [`MpiRma`](super::params::Variant::MpiRma), [`MpiP2p`](super::params::Variant::MpiP2p) | as `Rma` and `P2p`, by the calls of an MPI: MPI_Win_post, start, put, complete, wait; MPI_Irecv, Isend, Waitall | as `Rma` |
//! | [`MpiRmaDirect`](super::params::Variant::MpiRmaDirect), [`MpiP2pDirect`](super::params::Variant::MpiP2pDirect) | the same, with the kernels done by the calling thread | none: there is no stream |
//!
//! Those of this library use a window by slot: one slot for each neighbour, whose key is the direction in which *the
//! sender* sees the receiver. The unpack kernel reads straight from the slots.
//!
//! Nothing here depends on the [device](super::device), but for one choice: host-synchronised messages are
//! the calling thread's own work where streams are threads (an inline stream), and go to the kernels' stream,
//! with two explicit synchronisations, where they are queues of a GPU.
//!
//! **Compute.** The block is one region. If compute is on, it is [partitioned](tidegate_core::Region::partition)
//! into surface and interior, and the interior is handed to a second stream at the beginning of a
//! share, and back at its end. If it is off, the kernels see the block as one slice, which is faster.
//!
//! # Failures
//!
//! An error of the library ends the variant on this rank; dropping its half-done epoch revokes the
//! window, so that the others end with errors too. The next variant has windows and streams of its
//! own.

mod block;
mod host;
mod kit;
#[cfg(feature = "mpi")]
mod mpi;
mod persistent;
mod run;
mod setup;
mod st;

pub use run::{record, run};
pub use setup::{Setup, SetupOn};
