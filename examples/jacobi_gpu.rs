//! `jacobi` on GPUs: the solver of `halo2d_gpu`, whose kernel sends its own halo. It computes the averages, and puts the
//! outermost ones straight into the neighbours' slots. So there is one kernel for each sweep, and no copy between a
//! region and the network.
//!
//! Its numbers have the same bits as on the host. It compares them with the known answer. `ring_gpu` explains how
//! kernels are declared.
//!
//! Run it with `cargo run --example jacobi_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/jacobi_gpu`.

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

tidegate::kernel! {
    /// Kernels that put.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe struct Kernels {
        /// Puts the outermost unknowns of each side to the neighbour there.
        fn send_edges = "send_edges"(u: &[f64], width: u64, height: u64, sides: &[Side], out: OutSlots<f64>);
        /// Averages the neighbours in `from` into `to`, and puts the outermost averages.
        fn sweep = "sweep_and_send"(
            halo: Slots<f64>,
            from: &[f64],
            to: &mut [f64],
            width: u64,
            height: u64,
            sides: &[Side],
            out: OutSlots<f64>
        );
    }
}

/// Two arrays, used in turn. The inbox holds what the neighbours have sent of `u`.
#[derive(Carry)]
struct Jacobi<'s> {
    u: Region<f64, On<'s>>,
    v: Region<f64, On<'s>>,
    sides: Region<Side, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
}

/// What does not change.
struct Plan {
    kernels: Kernels<Gpu>,
    block: Block,
}

impl Plan {
    /// The sides of the block in unknowns.
    fn sizes(&self) -> [u64; 2] {
        [self.block.width as u64, self.block.height as u64]
    }

    fn unknowns(&self) -> usize {
        self.block.width * self.block.height
    }
}

/// Sends the halo of `u` before the first sweep.
fn begin<'s>(s: &Stream<'s>, plan: &Plan, mut j: Jacobi<'s>) -> Result<Jacobi<'s>> {
    let [width, height] = plan.sizes();
    let mut opened = j.outbox.open(s)?;
    let kernel = plan.kernels.send_edges.threads(plan.unknowns(), 128);
    s.launch(kernel, (&j.u, width, height, &j.sides, opened.slots()))?;
    let exposed = j.inbox.post(s)?;
    j.outbox = opened.complete(s)?;
    j.inbox = exposed.wait(s)?;
    Ok(j)
}

/// One sweep from `u` to `v`, which also sends the halo of `v`. Then the two are swapped.
fn half<'s>(s: &Stream<'s>, plan: &Plan, mut j: Jacobi<'s>) -> Result<Jacobi<'s>> {
    let [width, height] = plan.sizes();
    // The kernel still reads the slots of the last epoch, so this rank posts behind it. It need not wait for the
    // neighbours to do the same: a slot has two buffers.
    let mut opened = j.outbox.open(s)?;
    let kernel = plan.kernels.sweep.threads(plan.unknowns(), 128);
    s.launch(
        kernel,
        (
            j.inbox.view(),
            &j.u,
            &mut j.v,
            width,
            height,
            &j.sides,
            opened.slots(),
        ),
    )?;
    let exposed = j.inbox.post(s)?;
    let outbox = opened.complete(s)?;
    Ok(Jacobi {
        u: j.v,
        v: j.u,
        sides: j.sides,
        inbox: exposed.wait(s)?,
        outbox,
    })
}

fn run() -> Result<()> {
    let world = World::init()?;
    let module = Module::load(&world, CODE)?;
    let plan = Plan {
        // SAFETY: the module is `examples.cu`. Its functions take the declared parameters, keep to the lengths, and keep
        // the contract of `tidegate.cuh`.
        kernels: unsafe { Kernels::bind(&module) }?,
        block: Block::new(world.rank(), world.size()),
    };
    let block = &plan.block;

    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("halo");
    for side in &block.sides {
        // Data from the west neighbour was sent by it to its east: keys 0 and 1 belong together, and so do 2 and 3.
        window.slot_from(side.neighbour, side.key ^ 1, side.count);
        window.slot_to(side.neighbour, side.key);
    }
    let (inbox, outbox) = window.open(&s)?;
    let start = block.start();
    let [u, v] = [(); 2].map(|()| Region::from_slice(&world, &start));
    let mut j = Jacobi {
        u: u?.on(&s)?,
        v: v?.on(&s)?,
        sides: Region::from_slice(&world, &Side::all(block))?.on(&s)?,
        inbox,
        outbox,
    };
    j = begin(&s, &plan, j)?;

    // Two sweeps are recorded, after which both arrays are in their places again.
    let (graph, back) = s.capture(j, |s, j| half(s, &plan, half(s, &plan, j)?))?;
    graph.verify(&s)?.proof()?;
    j = back;
    let mut sweeps = 0;
    s.synchronize()?;
    let began = Instant::now();
    let error = loop {
        j = graph.replay(&s, j, 100)?;
        sweeps += 200;
        // Looking at the result takes a synchronisation and a copy, so it is done only now and then.
        let error = block.error(&j.u.to_vec(&s)?);
        // All ranks must stop together.
        let errors = world.all_gather_elements("error", &[error])?;
        let worst = errors.into_iter().flatten().fold(0.0, f64::max);
        if worst < TOLERANCE || sweeps > 100_000 {
            break worst;
        }
    };
    let took = began.elapsed();
    assert!(
        error < TOLERANCE,
        "no convergence: the error is still {error:e}"
    );
    if world.rank() == 0 {
        println!(
            "{} ranks, {N}x{N} unknowns: {sweeps} sweeps, largest error {error:.1e}",
            world.size()
        );
        eprintln!(
            "{:.2} us a sweep",
            took.as_secs_f64() * 1e6 / f64::from(sweeps)
        );
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
