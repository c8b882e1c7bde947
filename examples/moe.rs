//! A layer of a mixture of experts, whose experts are on all ranks.
//!
//! Each rank has tokens. A kernel chooses two experts for each token, so only the stream knows how many tokens go to
//! which rank. A [`CountedAllToAll`](tidegate::host::prelude::CountedAllToAll) sends as many as there are (the
//! *dispatch*), a kernel applies the experts, and another one sends the results back to where the tokens came from (the
//! *combine*). Nothing waits on the host, so the layer is recorded, and replayed with other tokens each time.
//!
//! At the end, each rank computes its tokens alone, and compares the bits.
//!
//! Run it with `cargo run --example moe`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/moe`. `moe_gpu` is the same on GPUs. Both share the layer
//! (`moe/layer.rs`), and each device has a file with its prelude and its kernels.

#[path = "moe/host.rs"]
mod device;
#[path = "moe/layer.rs"]
mod layer;
#[path = "moe/token.rs"]
mod token;

use device::prelude::*;

fn main() -> Result<()> {
    layer::run()
}
