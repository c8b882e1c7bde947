//! The models.

mod bell;
mod death;
mod epochs;
mod rig;
mod stream;
mod strike;
mod tickets;
