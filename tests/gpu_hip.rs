//! The tests of `gpu.rs`, over HIP. No AMD GPU has run them yet. They run over a HIP runtime that is made of a CUDA
//! driver (`crates/hip/src/over_cuda.c`).
//!
//! `gpu.rs` says which tests are not here, and why. The modules of `hip` are only here, since they are about the runtime
//! itself.

#[path = "gpu/mod.rs"]
mod gpu;

#[path = "gpu"]
mod hip {
    mod adopted;
}

/// What differs between vendors.
mod vendor {
    pub(crate) use tidegate::hip::{HipStream as GpuStream, gpu, prelude};

    /// What ranks need in their environment.
    pub(crate) const ENVIRONMENT: [(&str, &str); 0] = [];

    /// How many streams a process can have on a GPU (`crates/hip/src/start.rs`).
    pub(crate) fn queues() -> usize {
        20
    }

    /// The calls of the driver below the runtime, which it can refuse.
    pub(crate) fn calls() -> Vec<&'static str> {
        let texts = include_str!("../crates/hip/src/over_cuda.c").split('"');
        let is_call = |text: &&str| {
            text.strip_prefix("cu")
                .is_some_and(|rest| rest.starts_with(char::is_uppercase))
        };
        texts.filter(is_call).collect()
    }
}

#[path = "common"]
mod common {
    pub(crate) mod child;
    pub(crate) mod signals;
}
#[path = "schedules/mod.rs"]
mod schedules;
