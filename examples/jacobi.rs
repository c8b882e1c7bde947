//! The solver of `halo2d`, whose kernel sends its own halo: it computes the averages, and puts the outermost ones
//! straight into the neighbours' slots. So there is one kernel for each sweep, and no copy between a region and the
//! network.
//!
//! Run it with `cargo run --example jacobi`, or on 8 ranks: `cargo run -p tidegate-cli -- run -n 8
//! target/debug/examples/jacobi`.

#[path = "halo2d/block.rs"]
mod block;

use block::{Block, N, TOLERANCE};
use tidegate::host::prelude::*;

/// Two arrays, used in turn. The inbox holds what the neighbours have sent of `u`.
#[derive(Carry)]
struct Jacobi<'s> {
    u: Region<f64, On<'s>>,
    v: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
}

/// The block of this rank, and the slots for its sides.
#[derive(Clone)]
struct Plan {
    block: Block,
    to: Vec<Out<f64>>,
}

impl Plan {
    /// Puts the outermost unknowns of each side to the neighbour there.
    fn send(&self, u: &[f64], out: &mut OutSlots<'_, f64>) {
        for (side, to) in self.block.sides.iter().zip(&self.to) {
            for k in 0..side.count {
                out.put_one(*to, k, u[side.edge + k * side.stride]);
            }
        }
    }

    /// Fills the ghosts of `from` with what came, writes the averages to `to`, and sends the outermost ones.
    fn sweep(
        &self,
        halo: Slots<'_, f64>,
        from: &mut [f64],
        to: &mut [f64],
        out: &mut OutSlots<'_, f64>,
    ) {
        let block = &self.block;
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
        self.send(to, out);
    }
}

/// Sends the halo of `u` before the first sweep.
fn begin<'s>(s: &Stream<'s>, plan: &Plan, mut j: Jacobi<'s>) -> Result<Jacobi<'s>> {
    let mut opened = j.outbox.open(s)?;
    let plan = plan.clone();
    let kernel = move |u: &[f64], mut out: OutSlots<'_, f64>| plan.send(u, &mut out);
    s.launch(kernel, (&j.u, opened.slots()))?;
    let exposed = j.inbox.post(s)?;
    j.outbox = opened.complete(s)?;
    j.inbox = exposed.wait(s)?;
    Ok(j)
}

/// One sweep from `u` to `v`, which also sends the halo of `v`. Then the two are swapped.
fn half<'s>(s: &Stream<'s>, plan: &Plan, mut j: Jacobi<'s>) -> Result<Jacobi<'s>> {
    // The kernel still reads the slots of the last epoch, so this rank posts behind it. It need not wait for the
    // neighbours to do the same: a slot has two buffers.
    let mut opened = j.outbox.open(s)?;
    let plan = plan.clone();
    let kernel = move |halo: Slots<'_, f64>,
                       from: &mut [f64],
                       to: &mut [f64],
                       mut out: OutSlots<'_, f64>| {
        plan.sweep(halo, from, to, &mut out);
    };
    let arguments = (j.inbox.view(), &mut j.u, &mut j.v, opened.slots());
    s.launch(kernel, arguments)?;
    let exposed = j.inbox.post(s)?;
    let outbox = opened.complete(s)?;
    Ok(Jacobi {
        u: j.v,
        v: j.u,
        inbox: exposed.wait(s)?,
        outbox,
    })
}

fn main() -> Result<()> {
    let world = World::init()?;
    let block = Block::new(world.rank(), world.size());
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("halo");
    let mut to = Vec::new();
    for side in &block.sides {
        // Data from the west neighbour was sent by it to its east: keys 0 and 1 belong together, and so do 2 and 3.
        window.slot_from(side.neighbour, side.key ^ 1, side.count);
        to.push(window.slot_to(side.neighbour, side.key));
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
    let plan = Plan { block, to };
    j = begin(&s, &plan, j)?;

    // Two sweeps are recorded, after which both arrays are in their places again.
    let (graph, back) = s.capture(j, |s, j| half(s, &plan, half(s, &plan, j)?))?;
    graph.verify(&s)?.proof()?;
    j = back;
    let mut sweeps = 0;
    let error = loop {
        j = graph.replay(&s, j, 100)?;
        sweeps += 200;
        // Looking at the result takes a synchronisation and a copy, so it is done only now and then.
        let error = plan.block.error(&j.u.to_vec(&s)?);
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
