//! `moe` on GPUs: a layer of a mixture of experts, whose experts are on all ranks.
//!
//! The layer is the same file (`moe/layer.rs`), and `moe/gpu.rs` has the prelude and the kernels. Threads take the rows
//! for a rank by an atomic counter, which is the number of rows. So they come in any order, but each token knows its
//! rows, and ends with the same bits.
//!
//! Run it with `cargo run --example moe_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/moe_gpu`.

#[path = "moe/gpu.rs"]
mod device;
#[path = "moe/layer.rs"]
mod layer;
#[path = "moe/token.rs"]
mod token;

use device::prelude::*;

fn main() -> Result<()> {
    layer::run()
}
