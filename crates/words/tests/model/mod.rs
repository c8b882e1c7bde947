//! The models.

mod bell;
mod death;
mod epochs;
mod rig;
mod tickets;
