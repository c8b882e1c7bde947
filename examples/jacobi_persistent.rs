//! The solver of `halo2d` in one kernel: a single launch makes all sweeps, all exchanges of halos, and the decision to
//! stop.
//!
//! The host lends the kernel both halves of two windows ([`Inbox::lend`], [`Outbox::lend`]). One is for the halos. By
//! the other, the ranks tell each other their errors now and then, so that all of them stop together. While a halo is on
//! its way, the kernel computes the unknowns that need no ghost.
//!
//! Run it with `cargo run --example jacobi_persistent`, or on 8 ranks: `cargo run -p tidegate-cli -- run -n 8
//! target/debug/examples/jacobi_persistent`.

#[path = "halo2d/block.rs"]
mod block;

use block::{Block, N, TOLERANCE};
use tidegate::host::prelude::*;

/// Both halves of a window, in a kernel.
type Both<'k> = (KernelInbox<'k, f64>, KernelOutbox<'k, f64>);

/// The block of this rank, and its slots.
#[derive(Clone)]
struct Plan {
    block: Block,
    /// The slots for the halos, side by side.
    to: Vec<Out<f64>>,
    /// The slots for the errors, one for each other rank.
    errors: Vec<Out<f64>>,
}

impl Plan {
    fn average(&self, x: usize, y: usize, from: &[f64], to: &mut [f64]) {
        let block = &self.block;
        let [w, e] = [x - 1, x + 1].map(|x| from[block.at(x, y)]);
        let [s, n] = [y - 1, y + 1].map(|y| from[block.at(x, y)]);
        to[block.at(x, y)] = (w + e + s + n) / 4.0;
    }

    /// One sweep: exchanges the halo of `from`, and writes the averages to `to`.
    fn sweep<'k>(&self, (inbox, outbox): Both<'k>, from: &mut [f64], to: &mut [f64]) -> Both<'k> {
        let (block, width, height) = (&self.block, self.block.width, self.block.height);
        let exposed = inbox.post();
        let mut epoch = outbox.start();
        for (side, slot) in block.sides.iter().zip(&self.to) {
            for k in 0..side.count {
                epoch.put_one(*slot, k, from[side.edge + k * side.stride]);
            }
        }
        let outbox = epoch.complete();
        let inside = |x: usize, y: usize| (2..width).contains(&x) && (2..height).contains(&y);
        let cells = || (1..=height).flat_map(|y| (1..=width).map(move |x| (x, y)));
        for (x, y) in cells().filter(|(x, y)| inside(*x, *y)) {
            self.average(x, y, from, to);
        }
        let inbox = exposed.wait();
        for (side, received) in block.sides.iter().zip(inbox.read().iter()) {
            for (k, value) in received.iter().enumerate() {
                from[side.ghosts + k * side.stride] = *value;
            }
        }
        for (x, y) in cells().filter(|(x, y)| !inside(*x, *y)) {
            self.average(x, y, from, to);
        }
        (inbox, outbox)
    }

    /// The largest error of all ranks.
    fn worst<'k>(&self, (inbox, outbox): Both<'k>, error: f64) -> (f64, Both<'k>) {
        let exposed = inbox.post();
        let mut epoch = outbox.start();
        self.errors
            .iter()
            .for_each(|to| epoch.put_one(*to, 0, error));
        let outbox = epoch.complete();
        let inbox = exposed.wait();
        let worst = inbox.read().iter().map(|one| one[0]).fold(error, f64::max);
        (worst, (inbox, outbox))
    }

    /// The kernel: sweeps until no rank's error is too large. Returns the number of sweeps, and the largest error.
    fn solve<'k>(
        &self,
        mut halo: Both<'k>,
        mut errors: Both<'k>,
        u: &mut [f64],
        v: &mut [f64],
    ) -> [f64; 2] {
        for sweeps in (200..=100_000).step_by(200) {
            for _ in 0..100 {
                halo = self.sweep(halo, u, v);
                halo = self.sweep(halo, v, u);
            }
            let worst;
            (worst, errors) = self.worst(errors, self.block.error(u));
            if worst < TOLERANCE {
                return [sweeps as f64, worst];
            }
        }
        panic!("no convergence");
    }
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    let block = Block::new(rank, ranks);
    stream!(let s = world.stream()?);
    let mut halo = SlotWindow::new("halo");
    let mut to = Vec::new();
    for side in &block.sides {
        // Data from the west neighbour was sent by it to its east: keys 0 and 1 belong together, and so do 2 and 3.
        halo.slot_from(side.neighbour, side.key ^ 1, side.count);
        to.push(halo.slot_to(side.neighbour, side.key));
    }
    let (mut halo_in, mut halo_out) = halo.open(&s)?;
    let mut errors = SlotWindow::new("errors");
    let others = (0..ranks).filter(|other| *other != rank);
    let slots = others.map(|other| {
        errors.slot_from(other, 0, 1);
        errors.slot_to(other, 0)
    });
    let plan = Plan {
        errors: slots.collect(),
        block,
        to,
    };
    let (mut errors_in, mut errors_out) = errors.open(&s)?;
    let start = plan.block.start();
    let mut u = Region::from_slice(&world, &start)?.on(&s)?;
    let mut v = Region::from_slice(&world, &start)?.on(&s)?;
    let mut result = Region::<f64>::zeroed(&world, 2)?.on(&s)?;

    let kernel = move |u: &mut [f64],
                       v: &mut [f64],
                       result: &mut [f64],
                       halo_in: KernelInbox<'_, f64>,
                       halo_out: KernelOutbox<'_, f64>,
                       errors_in: KernelInbox<'_, f64>,
                       errors_out: KernelOutbox<'_, f64>| {
        let solved = plan.solve((halo_in, halo_out), (errors_in, errors_out), u, v);
        result.copy_from_slice(&solved);
    };
    let halo = (halo_in.lend(), halo_out.lend());
    let errors = (errors_in.lend(), errors_out.lend());
    s.launch(
        kernel,
        (
            &mut u,
            &mut v,
            &mut result,
            halo.0,
            halo.1,
            errors.0,
            errors.1,
        ),
    )?;

    let result = result.into_host(&s)?;
    if rank == 0 {
        let (sweeps, error) = (result[0], result[1]);
        println!("{ranks} ranks, {N}x{N} unknowns: {sweeps} sweeps, largest error {error:.1e}");
    }
    Ok(())
}
