//! What a device, a stream, and a control plane must do for tidegate.
//!
//! Four contracts and no policy: [`batch`] is the one primitive that streams execute for messaging, [`device`] what
//! executes it, [`nic`] what reaches the peers that no device does, and [`control`] how ranks meet.
//! ([`slots`] is the accounting that NICs' engines share.) Core validates what users ask for and hands down only what the
//! contracts allow; back ends do not check again.

pub mod batch;
pub mod control;
pub mod device;
pub mod error;
pub mod memory;
pub mod nic;
pub mod slots;
