//! `particles` on GPUs: particles that move along a closed line, which is cut into slabs.
//!
//! The steps are the same file (`particles/swarm.rs`), and `particles/gpu.rs` has the prelude and the kernels. Threads
//! take places in a list by an atomic counter, which is the list's header. So the particles of a list come in any
//! order, but they still end at the same places.
//!
//! Run it with `cargo run --example particles_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/particles_gpu`.

#[path = "particles/gpu.rs"]
mod device;
#[path = "particles/particle.rs"]
mod particle;
#[path = "particles/swarm.rs"]
mod swarm;

use device::prelude::*;

fn main() -> Result<()> {
    swarm::run()
}
