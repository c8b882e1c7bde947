//! What a device, a stream, a NIC and a control plane must do for tidegate.
//!
//! This crate has four contracts and no policy:
//!
//! - [`batch`]: the one unit of work that streams execute for messaging;
//! - [`device`]: what executes batches and kernels;
//! - [`nic`]: what reaches peers whose memory cannot be mapped;
//! - [`control`]: how ranks meet.
//!
//! The other modules serve these. [`code`] is what a device loads. [`far`] is for transports that stand in for mapped
//! memory, such as windows of MPI. The engines of NICs share [`armed`] (the programs of a queue) and [`slots`] (the
//! accounting of trigger slots). [`stamps`] are what tools get to see of a stream. [`variables`] is the list of environment variables. [`ids`] names windows, [`site`]
//! records the line of the program that made a call, and [`process`] keeps `fork` from copying what must not be copied.
//!
//! The layer above, `tidegate-core`, validates what users ask for, and passes down only what the contracts allow.
//! Devices and NICs do not check it again.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "tidegate runs on Linux with 64-bit pointers only: it shares memory by memfd, and wakes ranks by futex"
);

pub mod armed;
pub mod batch;
pub mod code;
pub mod control;
pub mod device;
pub mod error;
pub mod far;
pub mod ids;
pub mod limits;
mod lock;
pub mod memory;
pub mod nic;
pub mod process;
pub mod site;
pub mod slots;
pub mod stamps;
mod tell;
pub mod variables;

pub use lock::lock;
pub use tell::tell;
