//! `fft` on GPUs: a two-dimensional Fourier transform of a square whose rows are distributed over all ranks.
//!
//! The program is the same file (`fft/program.rs`), and `fft/gpu.rs` has the prelude and the kernels. The kernels and the
//! transpose between them are one graph of the driver, which is replayed.
//!
//! Run it with `cargo run --example fft_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/fft_gpu`.

#[path = "fft/gpu.rs"]
mod device;
#[path = "fft/program.rs"]
mod program;
#[path = "fft/square.rs"]
mod square;

use device::prelude::*;

fn main() -> Result<()> {
    program::run()
}
