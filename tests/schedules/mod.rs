//! Random jobs: how they are made, their right results, and how they run on a device. Three test programs have
//! this module: `tests/host`, whose `random.rs` runs the jobs, `tests/gpu.rs` and `tests/gpu_hip.rs`.

pub(crate) mod acts;
pub(crate) mod bag;
pub(crate) mod census;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod exec;
pub(crate) mod genes;
pub(crate) mod job;
mod judge;
pub(crate) mod lane;
pub(crate) mod mutants;
pub(crate) mod open;
pub(crate) mod oracle;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod rank;
pub(crate) mod reduce;
pub(crate) mod rounds;
pub(crate) mod trial;
pub(crate) mod value;
