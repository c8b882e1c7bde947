//! A two-dimensional Fourier transform of a square whose rows are distributed over all ranks.
//!
//! Each rank transforms its rows. An all-to-all then transposes the square: each rank sends to each rank the part of
//! its rows that lies in the other's columns. Each rank transforms its columns, which lie in its memory as rows now.
//! All of it is enqueued, recorded once, and replayed. Each rank compares its part of the spectrum with a direct sum
//! over the square.
//!
//! Run it with `cargo run --example fft`, or on 3 ranks: `cargo run -p tidegate-cli -- run -n 3
//! target/debug/examples/fft`. `fft_gpu` is the same on GPUs. Both share the program (`fft/program.rs`), and each device
//! has a file with its prelude and its kernels.

#[path = "fft/host.rs"]
mod device;
#[path = "fft/program.rs"]
mod program;
#[path = "fft/square.rs"]
mod square;

use device::prelude::*;

fn main() -> Result<()> {
    program::run()
}
