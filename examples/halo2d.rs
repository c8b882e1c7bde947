//! A Jacobi solver on a two-dimensional grid that is distributed over all ranks: the smallest real halo exchange.
//!
//! It solves Laplace's equation in a square whose border has the values of `x^2 - y^2`. That function solves the
//! equation, and also the usual five-point average, without any error. So the answer is known, and the program checks
//! it.
//!
//! Run it with `cargo run --example halo2d`, or on 8 ranks: `cargo run -p tidegate-cli -- run -n 8
//! target/debug/examples/halo2d`. `halo2d_gpu` is the same on GPUs.

#[path = "halo2d/block.rs"]
mod block;

use block::{Block, N, TOLERANCE};
use tidegate::host::prelude::*;

/// Two arrays, used in turn.
#[derive(Carry)]
struct Jacobi<'s> {
    u: Region<f64, On<'s>>,
    v: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
}

/// The kernel: fills the ghosts of `from` with the values that came, and writes the averages to `to`.
fn sweep(block: &Block, halo: Slots<'_, f64>, from: &mut [f64], to: &mut [f64]) {
    for (side, received) in block.sides.iter().zip(halo.iter()) {
        for (k, value) in received.iter().enumerate() {
            from[side.ghosts + k * side.stride] = *value;
        }
    }
    for y in 1..=block.height {
        for x in 1..=block.width {
            let [w, e] = [x - 1, x + 1].map(|x| from[block.at(x, y)]);
            let [s, n] = [y - 1, y + 1].map(|y| from[block.at(x, y)]);
            to[block.at(x, y)] = (w + e + s + n) / 4.0;
        }
    }
}

/// One sweep from `u` to `v`. Then the two are swapped.
fn half<'s>(
    s: &Stream<'s>,
    block: &Block,
    edges: &[Layout],
    mut j: Jacobi<'s>,
) -> Result<Jacobi<'s>> {
    let exposed = j.inbox.post(s)?;
    let slots = j.outbox.slots(); // one for each side
    let mut epoch = j.outbox.start();
    for (to, edge) in slots.zip(edges) {
        // The put gathers the edge while it sends: a column needs no packing.
        epoch.put(j.u.with(edge)?, to)?;
    }
    let outbox = epoch.complete(s)?;
    let inbox = exposed.wait(s)?;
    let block = block.clone();
    let kernel =
        move |halo: Slots<'_, f64>, from: &mut [f64], to: &mut [f64]| sweep(&block, halo, from, to);
    s.launch(kernel, (inbox.view(), &mut j.u, &mut j.v))?;
    Ok(Jacobi {
        u: j.v,
        v: j.u,
        inbox,
        outbox,
    })
}

fn main() -> Result<()> {
    let world = World::init()?;
    let block = Block::new(world.rank(), world.size());
    // The outermost unknowns along each side. These layouts are made once, since making one checks it.
    let edge =
        |side: &block::Side| Layout::strided(side.edge, &[(side.count as u32, side.stride as i32)]);
    let edges = block.sides.iter().map(edge).collect::<Result<Vec<_>>>()?;

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
        inbox,
        outbox,
    };

    // A step that returns its arrays swapped could not be replayed (capture would say so). So two sweeps are recorded,
    // after which everything is in its place again.
    let (graph, back) = s.capture(j, |s, j| {
        half(s, &block, &edges, half(s, &block, &edges, j)?)
    })?;
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
