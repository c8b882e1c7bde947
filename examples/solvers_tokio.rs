//! Several solvers as tokio tasks, beside a timer and a file that is written meanwhile.
//!
//! Each solver is a rod whose ends meet: the ranks share its cells, and heat flows between neighbours. A solver has a stream
//! of its own, records its steps once, replays them, and *awaits* its stream. The stream wakes the task; no thread spins or
//! blocks for it. So one worker thread drives all solvers, the timer, and the file.
//!
//! What may be awaited: a stream ([`Stream::synchronized`]) and what is on it ([`Region::to_vec_async`],
//! [`Region::into_host_async`]). Opening a window is collective and blocks, and all ranks open their windows in the same
//! order: so a solver begins when the one before it is ready. None replays before all are: GPUs record nothing while a
//! stream waits.
//!
//! Run it with `cargo run --example solvers_tokio`, or on 4 ranks:
//! `cargo run --bin tidegate -- run -n 4 target/debug/examples/solvers_tokio`. `solvers_tokio_cuda` is the same on GPUs: the
//! solvers are one text for both (`solvers_tokio/rods.rs`), and a program has its prelude and its kernel.

#[path = "solvers_tokio/rods.rs"]
mod rods;

use prelude::*;
use tidegate::host::prelude;

struct Kernels;

impl Kernels {
    fn new(_: &World) -> Result<Self> {
        Ok(Kernels)
    }

    /// Heat flows between cells, and from those of the neighbours: left and right.
    fn flow<'s>(
        &self,
        s: &Stream<'s>,
        came: InboxView<'_, 's, f64>,
        ends: [In<f64>; 2],
        heat: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
        flow: f64,
    ) -> Result<()> {
        let kernel = move |came: Slots<'_, f64>, heat: &[f64], next: &mut [f64]| {
            let [before, behind] = ends.map(|end| came.slot(end)[0]);
            for (i, next) in next.iter_mut().enumerate() {
                let left = if i == 0 { before } else { heat[i - 1] };
                let right = heat.get(i + 1).copied().unwrap_or(behind);
                *next = heat[i] + flow * (left - 2.0 * heat[i] + right);
            }
        };
        s.launch(kernel, (came, heat, next))
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    rods::run().await
}
