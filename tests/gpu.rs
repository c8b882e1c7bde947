//! Tests that need an NVIDIA GPU. `scripts/gpu.sh` runs all of them.
//!
//! Ranks are threads of this process, on one GPU or on several. If a job of processes is tested, this program starts
//! itself again for each rank.
//!
//! The modules of `gpu` are in `gpu_hip.rs`, too. Those of `cuda` are not, since they are about what AMD's GPUs do not
//! have, or are not trusted with yet: kernels that begin early, MPS, and what blocks behind a wait of NVIDIA's driver;
//! and about streams and memory of `cudarc`.

#[path = "gpu/mod.rs"]
mod gpu;

#[path = "gpu"]
mod cuda {
    mod early;
    mod interop;
    mod mps;
    mod registers;
    mod roles;
    mod rules;
}

/// What differs between vendors.
mod vendor {
    pub(crate) use tidegate::cuda::{CudaStream as GpuStream, ENVIRONMENT, gpu, prelude};

    /// How many streams a process can have on a GPU, by the hardware queues that it asks for.
    pub(crate) fn queues() -> usize {
        let set = std::env::var(tidegate::cuda::QUEUES).ok();
        set.and_then(|set| set.trim().parse().ok())
            .unwrap_or(8_usize)
            .clamp(1, 32)
    }

    /// The calls that the driver without a GPU can refuse.
    pub(crate) fn calls() -> Vec<&'static str> {
        [tidegate_ffi::cuda::REQUIRED, tidegate_ffi::cuda::OPTIONAL].concat()
    }
}

#[path = "common"]
mod common {
    pub(crate) mod child;
    pub(crate) mod signals;
}
#[path = "schedules/mod.rs"]
mod schedules;
