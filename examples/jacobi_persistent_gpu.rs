//! `jacobi_persistent` on GPUs: one kernel makes all sweeps, all exchanges of halos, and the decision to stop.
//!
//! The host lends the kernel both halves of two windows, and waits for it. All blocks of the kernel run at the same time,
//! so there are no more of them than the GPU has room for. `jacobi_gpu` is the same solver with a kernel for each sweep,
//! and has the same numbers, to the bit.
//!
//! Run it with `cargo run --example jacobi_persistent_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/jacobi_persistent_gpu`.

#[path = "halo2d/block.rs"]
mod block;
#[path = "halo2d/side.rs"]
mod side;

use std::time::Instant;

use block::{Block, N, TOLERANCE};
use side::Side;
#[cfg(feature = "cuda")]
use tidegate::cuda::prelude::*;
#[cfg(not(feature = "cuda"))]
use tidegate::hip::prelude::*;

const CODE: Code = code!("../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

/// Sweeps after which the kernel gives up.
const MOST: u32 = 100_000;

tidegate::kernel! {
    /// Sweeps until no rank's error is too large.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`. Its function keeps to the lengths, and keeps the contract of kernels that own halves
    /// (`tidegate.cuh`).
    unsafe fn solve = "solve"(
        u: &mut [f64],
        v: &mut [f64],
        answer: &[f64],
        width: u64,
        height: u64,
        sides: &[Side],
        halo_in: KernelInbox<f64>,
        halo_out: KernelOutbox<f64>,
        errors_in: KernelInbox<f64>,
        errors_out: KernelOutbox<f64>,
        result: &mut [f64],
        most: u32,
        tolerance: f64
    );
}

fn run() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    let module = Module::load(&world, CODE)?;
    // SAFETY: the module is `examples.cu`.
    let solve = unsafe { solve(&module) }?;
    let block = Block::new(rank, ranks);

    stream!(let s = world.stream()?);
    let mut halo = SlotWindow::new("halo").for_kernels();
    for side in &block.sides {
        // Data from the west neighbour was sent by it to its east: keys 0 and 1 belong together, and so do 2 and 3.
        halo.slot_from(side.neighbour, side.key ^ 1, side.count);
        halo.slot_to(side.neighbour, side.key);
    }
    let (mut halo_in, mut halo_out) = halo.open(&s)?;
    let mut errors = SlotWindow::new("errors").for_kernels();
    for other in (0..ranks).filter(|other| *other != rank) {
        errors.slot_from(other, 0, 1);
        errors.slot_to(other, 0);
    }
    let (mut errors_in, mut errors_out) = errors.open(&s)?;

    let start = block.start();
    let cells = (0..block.height + 2).flat_map(|y| (0..block.width + 2).map(move |x| (x, y)));
    let answer: Vec<_> = cells.map(|(x, y)| block.exact(x, y)).collect();
    let mut u = Region::from_slice(&world, &start)?.on(&s)?;
    let mut v = Region::from_slice(&world, &start)?.on(&s)?;
    let answer = Region::from_slice(&world, &answer)?.on(&s)?;
    let sides = Region::from_slice(&world, &Side::all(&block))?.on(&s)?;
    let mut result = Region::<f64>::zeroed(&world, 2)?.on(&s)?;

    let unknowns = block.width * block.height;
    s.synchronize()?;
    let began = Instant::now();
    s.launch(
        // At most as many blocks as a small GPU has room for.
        solve.threads(unknowns.min(16 * 128), 128),
        (
            &mut u,
            &mut v,
            &answer,
            block.width as u64,
            block.height as u64,
            &sides,
            halo_in.lend(),
            halo_out.lend(),
            errors_in.lend(),
            errors_out.lend(),
            &mut result,
            MOST,
            TOLERANCE,
        ),
    )?;
    let result = result.to_vec(&s)?;
    let took = began.elapsed();
    let (sweeps, error) = (result[0], result[1]);
    assert!(
        error < TOLERANCE,
        "no convergence: the error is still {error:e}"
    );
    // The kernel has told the truth.
    assert!(block.error(&u.to_vec(&s)?) <= error);
    if rank == 0 {
        println!("{ranks} ranks, {N}x{N} unknowns: {sweeps} sweeps, largest error {error:.1e}");
        eprintln!("{:.2} us a sweep", took.as_secs_f64() * 1e6 / sweeps);
    }
    Ok(())
}

fn main() {
    // Without a driver or a GPU, the program says so.
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
