//! Several solvers as tokio tasks, together with a timer and a file that is written meanwhile.
//!
//! Each solver is a rod whose ends meet. The ranks share its cells, and heat flows between neighbours. A solver has a
//! stream of its own, records its steps once, replays them, and *awaits* its stream. The stream wakes the task; no
//! thread spins or blocks for it. So one worker thread drives all solvers, the timer, and the file.
//!
//! A program can await a stream ([`Stream::synchronized`]) and the data on it ([`Region::to_vec_async`],
//! [`Region::into_host_async`]). Opening a window is collective and blocks, and all ranks must open their windows in
//! the same order. So a solver begins when the one before it is ready. None replays before all are ready, because GPUs
//! cannot record while a stream waits.
//!
//! Run it with `cargo run --example solvers_tokio`, or on 4 ranks: `cargo run -p tidegate-cli -- run -n 4
//! target/debug/examples/solvers_tokio`. `solvers_tokio_gpu` is the same on GPUs. Both share the solvers
//! (`solvers_tokio/rods.rs`), and each device has a file with its prelude and its kernel.

#[path = "solvers_tokio/host.rs"]
mod device;
#[path = "solvers_tokio/rods.rs"]
mod rods;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    rods::run().await
}
