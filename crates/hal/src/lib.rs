//! What a device, a stream, and a control plane must do for tidegate.
//!
//! Four contracts and no policy: [`batch`] is the one primitive that streams execute for messaging, [`device`] what
//! executes it, [`nic`] what reaches the peers that no device does, and [`control`] how ranks meet. ([`far`] is what a
//! device may reach peers by that it cannot map; [`armed`] and [`slots`] are what NICs' engines share: the programs of a
//! queue, and the accounting of trigger slots. [`ids`] are the names of windows, and [`site`] is where the program calls. [`process`] says what `fork` must not copy.) Core validates what users ask for and hands down only what the contracts
//! allow; back ends do not check again.

pub mod armed;
pub mod batch;
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
mod tell;

pub use lock::lock;
pub use tell::tell;
