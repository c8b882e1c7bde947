//! The models.

mod bell;
mod epochs;
mod rig;
