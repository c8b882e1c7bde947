//! `heat3d` on GPUs: the heat equation in a cube, with ghost faces that land in place.
//!
//! The solver is the same file (`heat3d/solver.rs`), and `heat3d/gpu.rs` has the prelude and the kernels. The results
//! have the same bits as on the host.
//!
//! Run it with `cargo run --example heat3d_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/heat3d_gpu`.

#[path = "heat3d/block.rs"]
mod block;
#[path = "heat3d/gpu.rs"]
mod device;
#[path = "heat3d/solver.rs"]
mod solver;

use device::prelude::*;

fn main() -> Result<()> {
    solver::run()
}
