//! The heat equation in a cube whose opposite faces meet, spread over a grid of ranks: ghost faces that land in place.
//!
//! Each rank declares which ghosts of its neighbours it writes, as boxes of their blocks ([`Layout::subarray`],
//! [`RangeWindow`]'s `layout_to`); all ranks check that no two faces overlap. So a put gathers the outermost layer of one
//! block and scatters it into the ghosts of the other: nobody packs, nobody unpacks. While the faces are under way a kernel
//! computes all elements that need no ghost.
//!
//! Many steps, and the largest change over all ranks at their end, are recorded once. The host replays them, and looks at
//! that one number.
//!
//! Each step has the same sums in the same order wherever an element lies. So the result has the same bits on any number
//! of ranks; each rank compares its block with a serial run.
//!
//! Run it with `cargo run --example heat3d`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/heat3d`. `heat3d_cuda` is the same on GPUs: the solver is
//! one text for both (`heat3d/solver.rs`), and each device has a file with its prelude and its kernels.

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
