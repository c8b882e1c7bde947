//! `halo2d` on GPUs: a Jacobi solver on a two-dimensional grid that is distributed over all ranks.
//!
//! Its numbers have the same bits as on the host. It compares them with the known answer. `ring_gpu` explains how
//! kernels are declared.
//!
//! Run it with `cargo run --example halo2d_gpu`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/halo2d_gpu`.

#[path = "halo2d/block.rs"]
mod block;

use block::{Block, N, TOLERANCE};
#[cfg(feature = "cuda")]
use tidegate::cuda::prelude::*;
#[cfg(not(feature = "cuda"))]
use tidegate::hip::prelude::*;

const CODE: Code = code!("../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

/// Where a neighbour's data belongs, in the form that the kernel reads: the first ghost cell, and the distance from
/// each to the next.
#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Ghosts {
    first: u64,
    stride: u64,
}

tidegate::kernel! {
    /// Fills the ghosts of `u` with the values that came.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn fill_ghosts = "fill_ghosts"(halo: Slots<f64>, ghosts: &[Ghosts], u: &mut [f64]);
    /// Averages the neighbours in `from` into `to`.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe fn sweep = "sweep"(from: &[f64], to: &mut [f64], width: u64, height: u64);
}

struct Kernels {
    fill_ghosts: fill_ghosts<Gpu>,
    sweep: sweep<Gpu>,
}

impl Kernels {
    fn load(world: &World) -> Result<Self> {
        let module = Module::load(world, CODE)?;
        // SAFETY: the module is `examples.cu`. Its functions take the declared parameters, and keep to the lengths.
        unsafe {
            Ok(Kernels {
                fill_ghosts: fill_ghosts(&module)?,
                sweep: sweep(&module)?,
            })
        }
    }
}

/// Two arrays, used in turn.
#[derive(Carry)]
struct Jacobi<'s> {
    u: Region<f64, On<'s>>,
    v: Region<f64, On<'s>>,
    ghosts: Region<Ghosts, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
}

/// What does not change: the kernels, the block, and the outermost unknowns along each of its sides.
struct Plan {
    kernels: Kernels,
    block: Block,
    edges: Vec<Layout>,
}

/// One sweep from `u` to `v`. Then the two are swapped.
fn half<'s>(s: &Stream<'s>, plan: &Plan, mut j: Jacobi<'s>) -> Result<Jacobi<'s>> {
    let (k, block) = (&plan.kernels, &plan.block);
    let exposed = j.inbox.post(s)?;
    let slots = j.outbox.slots(); // one for each side
    let mut epoch = j.outbox.start();
    for (to, edge) in slots.zip(&plan.edges) {
        // The put gathers the edge while it sends, so a column needs no packing kernel.
        epoch.put(j.u.with(edge)?, to)?;
    }
    let outbox = epoch.complete(s)?;
    let inbox = exposed.wait(s)?;
    let (width, height) = (block.width as u64, block.height as u64);
    // There are two kernels, because the blocks of one kernel could not wait for each other's ghosts.
    let (along, all) = (block.width.max(block.height), block.width * block.height);
    s.launch(
        k.fill_ghosts.threads(along, 128),
        (inbox.view(), &j.ghosts, &mut j.u),
    )?;
    s.launch(k.sweep.threads(all, 128), (&j.u, &mut j.v, width, height))?;
    Ok(Jacobi {
        u: j.v,
        v: j.u,
        ghosts: j.ghosts,
        inbox,
        outbox,
    })
}

fn run() -> Result<()> {
    let world = World::init()?;
    let block = Block::new(world.rank(), world.size());
    let edge =
        |side: &block::Side| Layout::strided(side.edge, &[(side.count as u32, side.stride as i32)]);
    let plan = Plan {
        kernels: Kernels::load(&world)?,
        edges: block.sides.iter().map(edge).collect::<Result<_>>()?,
        block,
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
    let ghosts = block.sides.iter().map(|side| Ghosts {
        first: side.ghosts as u64,
        stride: side.stride as u64,
    });
    let ghosts: Vec<_> = ghosts.collect();
    let start = block.start();
    let [u, v] = [(); 2].map(|()| Region::from_slice(&world, &start));
    let mut j = Jacobi {
        u: u?.on(&s)?,
        v: v?.on(&s)?,
        ghosts: Region::from_slice(&world, &ghosts)?.on(&s)?,
        inbox,
        outbox,
    };

    // A step that returns its arrays swapped could not be replayed (capture would say so). So two sweeps are recorded,
    // after which everything is in its place again.
    let (graph, back) = s.capture(j, |s, j| half(s, &plan, half(s, &plan, j)?))?;
    graph.verify(&s)?.proof()?;
    j = back;
    let mut sweeps = 0;
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
    assert!(
        error < TOLERANCE,
        "no convergence: the error is still {error:e}"
    );
    if world.rank() == 0 {
        println!(
            "{} ranks, {N}x{N} unknowns: {sweeps} sweeps, largest error {error:.1e}",
            world.size()
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
