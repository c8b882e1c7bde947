//! Particles that move along a closed line. The line is cut into slabs, one for each rank. How many particles leave a
//! slab in a step is known only on the stream, differs from step to step, and is often 0.
//!
//! So each message has a header that says how many particles follow, and the put sends as many as the kernel has
//! counted. It does so in every step, even if no particle leaves: a slot that a step skips would keep the data from two
//! steps ago (`tidegate::guide::messages`). Many steps can be recorded. The host waits only now and then, to check by
//! two sums over all ranks that no particle is lost. At the end each rank compares its particles, bit by bit, with
//! where they should be.
//!
//! Run it with `cargo run --example particles`, or on 8 ranks: `cargo run -p tidegate-cli -- run -n 8
//! target/debug/examples/particles`. `particles_gpu` is the same on GPUs. Both share the steps (`particles/swarm.rs`),
//! and each device has a file with its prelude and its kernels.

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
