//! `solvers_tokio` on GPUs: several solvers as tokio tasks, each with a stream of its own.
//!
//! The solvers are the same file (`solvers_tokio/rods.rs`), and `solvers_tokio/gpu.rs` has the prelude and the kernel.
//!
//! Run it with `cargo run --example solvers_tokio_gpu`, or on 4 ranks:
//! `cargo run -p tidegate-cli -- run -n 4 target/debug/examples/solvers_tokio_gpu`.

#[path = "solvers_tokio/gpu.rs"]
mod device;
#[path = "solvers_tokio/rods.rs"]
mod rods;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    rods::run().await
}
