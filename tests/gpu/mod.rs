//! The tests of GPUs of any vendor. They name no vendor but by `crate::vendor`: each test program has such a module, with
//! what differs.

mod collectives;
pub(crate) mod common;
mod counted;
mod device;
mod ends;
pub(crate) mod epochs;
mod failure;
mod fill;
mod fill_faults;
mod fill_ranges;
mod follow;
mod forked;
mod lanes;
mod nic;
mod own;
pub(crate) mod processes;
mod reduce;
mod refused;
mod schedules;
mod stamps;
mod sums;
