//! Tests that need a GPU. `scripts/gpu.sh` runs all of them.
//!
//! Ranks are threads of this process, on one GPU or on several. If a job of processes is tested, this program starts
//! itself again for each rank.

mod gpu {
    pub(crate) mod common;
    mod counted;
    mod device;
    mod early;
    mod ends;
    pub(crate) mod epochs;
    mod failure;
    mod follow;
    mod forked;
    mod interop;
    mod mps;
    mod nic;
    mod processes;
    mod reduce;
    mod refused;
    mod registers;
    mod roles;
    mod rules;
    mod schedules;
    mod sums;
}

#[path = "common"]
mod common {
    pub(crate) mod child;
    pub(crate) mod signals;
}
#[path = "schedules/mod.rs"]
mod schedules;
