//! Particles that move along a closed line, which is cut in slabs, one a rank: how many leave a slab in a step is known
//! on the stream only, differs from step to step, and is often none.
//!
//! So each message has a header that says how many particles are behind it, and as much is put as the kernel has counted,
//! in every step, also where nothing leaves: what a step does not put would be what the one before last left
//! (`tidegate::guide::messages`). And so many steps can be recorded, and the host waits now and then only: to see that no
//! particle is lost, by two sums over all ranks. At the end each rank compares its particles, bit by bit, with where they
//! should be.
//!
//! Run it with `cargo run --example particles`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/particles`. `particles_cuda` is the same on GPUs: the steps
//! are one text for both (`particles/swarm.rs`), and each device has a file with its prelude and its kernels.

#[path = "particles/host.rs"]
mod device;
#[path = "particles/particle.rs"]
mod particle;
#[path = "particles/swarm.rs"]
mod swarm;

use device::prelude::*;

fn main() -> Result<()> {
    swarm::run()
}
