//! The models.

mod bell;
mod blocks;
mod death;
mod epochs;
mod grants;
mod grids;
mod lent;
mod pull;
mod rig;
mod stream;
mod strike;
mod tickets;
