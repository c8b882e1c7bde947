//! The solver of `heat3d`, for any device.

use crate::block::{Block, N, serial, start};
use crate::device::Kernels;
use crate::device::prelude::*;

/// The steps end when no element changes by more than this.
const SMALL: f64 = 1e-3;
/// The number of steps between two looks at the change. It is even, since each step swaps the two arrays.
const LOOK: usize = 20;

/// What a step needs. `'s` is the brand of the stream that it is at home on.
#[derive(Carry)]
struct Heat<'s> {
    /// The newest values, and the array that a step writes.
    u: Region<f64, On<'s>>,
    next: Region<f64, On<'s>>,
    /// The largest change of the last step: one number, or several of which the largest counts.
    change: Region<f64, On<'s>>,
    largest: AllReduce<'s, f64>,
    /// Its memory is a block, of which the neighbours write the outermost layer: the ghosts.
    inbox: Inbox<'s, f64, ByRange>,
    outbox: Outbox<'s, f64, ByRange>,
}

/// A face of the block: this rank's outermost layer, and the neighbour's ghosts that copy it.
struct Face {
    layer: Layout,
    ghosts: Out<f64>,
}

/// One step. Nothing here waits.
fn step<'s>(s: &Stream<'s>, k: &Kernels, faces: &[Face], mut h: Heat<'s>) -> Result<Heat<'s>> {
    let exposed = h.inbox.post(s)?;
    let mut epoch = h.outbox.start();
    for face in faces {
        epoch.put(h.u.with(&face.layer)?, face.ghosts)?; // gathered here, scattered there
    }
    h.outbox = epoch.complete(s)?;
    k.inner(s, &h.u, &mut h.next)?; // meanwhile what has no ghost beside it
    h.inbox = exposed.wait(s)?;
    k.outer(s, h.inbox.memory(), &h.u, &mut h.next)?;
    (h.u, h.next) = (h.next, h.u);
    Ok(h)
}

pub(crate) fn run() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    let grid = Cartesian::new(ranks);
    let longest = grid.dims()[0];
    assert!(longest <= N, "no rank is without an element");
    let block = Block::of(grid, rank);
    let kernels = Kernels::new(&world, block.dims)?;

    stream!(let s = world.stream()?);
    let mut window = RangeWindow::new("ghosts", block.len());
    let mut faces = Vec::new();
    for k in 0..3 {
        for up in [false, true] {
            let beside = grid.shift_periodic(rank, k, if up { 1 } else { -1 });
            let there = Block::of(grid, beside);
            // Upwards goes this rank's last layer, which lands before the neighbour's first one; downwards it is the
            // other way round.
            let (mine, its) = if up {
                (block.dims[k] - 2, 0)
            } else {
                (1, there.dims[k] - 1)
            };
            let ghosts = Layout::subarray(&there.dims, &there.layer(k, its))?;
            faces.push(Face {
                layer: Layout::subarray(&block.dims, &block.layer(k, mine))?,
                ghosts: window.layout_to(beside, &ghosts),
            });
        }
    }
    let (inbox, outbox) = window.open(&s)?;

    let mut u = vec![0.0; block.len()];
    for (at, in_cube) in block.own() {
        u[at] = start(in_cube);
    }
    let heat = Heat {
        u: Region::from_vec(&world, u)?.on(&s)?,
        next: Region::zeroed(&world, block.len())?.on(&s)?,
        change: Region::zeroed(&world, Kernels::CHANGES)?.on(&s)?,
        largest: AllReduce::open(&s, "change", Kernels::CHANGES, Op::Max)?,
        inbox,
        outbox,
    };
    let (graph, mut heat) = s.capture(heat, |s, mut heat| {
        for _ in 0..LOOK {
            heat = step(s, &kernels, &faces, heat)?;
        }
        kernels.change(s, &heat.u, &heat.next, &mut heat.change)?;
        heat.largest.enqueue(s, &mut heat.change)?;
        Ok(heat)
    })?;
    graph.verify(&s)?.proof()?;

    let mut steps = 0;
    let last = loop {
        heat = graph.replay(&s, heat, 1)?;
        steps += LOOK;
        // All ranks have the same number, so all stop here.
        let change = heat.change.to_vec(&s)?.into_iter().fold(0.0, f64::max);
        if change < SMALL {
            break change;
        }
    };

    let (u, expected) = (heat.u.to_vec(&s)?, serial(steps));
    for (at, in_cube) in block.own() {
        let [x, y, z] = in_cube;
        let (is, should) = (u[at], expected[(x * N + y) * N + z]);
        assert_eq!(
            is.to_bits(),
            should.to_bits(),
            "at {in_cube:?}: {is} is not {should}"
        );
    }
    if rank == 0 {
        println!(
            "{ranks} ranks, {N}x{N}x{N} elements: {steps} steps, the last one changed {last:.1e}"
        );
    }
    Ok(())
}
