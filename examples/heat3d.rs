//! The heat equation in a cube whose opposite faces meet, distributed over a grid of ranks, with ghost faces that land
//! in place.
//!
//! Each rank declares the ghosts of its neighbours that it writes, as boxes of their blocks ([`Layout::subarray`],
//! [`RangeWindow`]'s `layout_to`). All ranks check that no two faces overlap. A put gathers the outermost layer of one
//! block and scatters it into the ghosts of the other, so no kernel packs or unpacks. While the faces are on their way,
//! a kernel computes all elements that need no ghost.
//!
//! Many steps, and the largest change over all ranks at their end, are recorded once. The host replays them, and looks
//! at that one number.
//!
//! Each element is the same sum in the same order, wherever it lies. So the result has the same bits on any number of
//! ranks, and each rank compares its block with a serial run.
//!
//! Run it with `cargo run --example heat3d`, or on 8 ranks: `cargo run -p tidegate-cli -- run -n 8
//! target/debug/examples/heat3d`. `heat3d_gpu` is the same on GPUs. Both share the solver (`heat3d/solver.rs`), and
//! each device has a file with its prelude and its kernels.

#[path = "heat3d/block.rs"]
mod block;
#[path = "heat3d/host.rs"]
mod device;
#[path = "heat3d/solver.rs"]
mod solver;

use device::prelude::*;

fn main() -> Result<()> {
    solver::run()
}
