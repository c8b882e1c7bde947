//! What `heat3d` does on any device: its steps, and the same in one loop, to compare with.

use std::ops::Range;

use crate::Kernels;
use crate::prelude::*;

/// Elements along an edge of the cube.
const N: usize = 18;
/// How much of the difference to a neighbour an element takes over in a step. It is a power of 2, so that the product is not
/// rounded: GPUs may make one operation of it and the sum.
const RATE: f64 = 1.0 / 8.0;
/// The steps end when no element changes by more.
const SMALL: f64 = 1e-3;
/// How many steps there are between two looks at the change: an even number, since two arrays change places in each.
const LOOK: usize = 20;

/// A block of the cube, with a layer of ghosts around it.
struct Block {
    /// The elements of the cube, in each dimension.
    of_cube: [Range<usize>; 3],
    /// The size with ghosts.
    dims: [usize; 3],
}

impl Block {
    fn of(grid: Cartesian<3>, rank: usize) -> Self {
        let of_cube = grid.block(rank, [N; 3]);
        let dims = [0, 1, 2].map(|k| of_cube[k].len() + 2);
        Block { of_cube, dims }
    }

    fn len(&self) -> usize {
        self.dims.iter().product()
    }

    fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        (x * self.dims[1] + y) * self.dims[2] + z
    }

    /// A layer: all elements that are no ghosts in the other two dimensions, at `at` in dimension `k`.
    fn layer(&self, k: usize, at: usize) -> Result<Layout> {
        let mut ranges = self.dims.map(|dim| 1..dim - 1);
        ranges[k] = at..at + 1;
        Layout::subarray(&self.dims, &ranges)
    }

    /// The elements that are no ghosts: where each is in the block, and in the cube.
    fn own(&self) -> impl Iterator<Item = (usize, [usize; 3])> {
        let [xs, ys, zs] = self.dims.map(|dim| 1..dim - 1);
        let places = xs.flat_map(move |x| {
            let zs = zs.clone();
            ys.clone()
                .flat_map(move |y| zs.clone().map(move |z| [x, y, z]))
        });
        let in_cube = |place: [usize; 3]| [0, 1, 2].map(|k| self.of_cube[k].start + place[k] - 1);
        places.map(move |place| (self.index(place), in_cube(place)))
    }
}

/// The temperature at first.
fn start([x, y, z]: [usize; 3]) -> f64 {
    ((x * 7 + y * 5 + z * 3) % 11) as f64 - 5.0 + if x < N / 2 { 4.0 } else { 0.0 }
}

/// What an element becomes in a step, from what it is and its neighbours are. The sums have one order everywhere.
pub(crate) fn next(here: f64, around: [f64; 6]) -> f64 {
    here + RATE * around.iter().fold(0.0, |sum, beside| sum + (beside - here))
}

/// So many steps of the whole cube, one element after the other.
fn serial(steps: usize) -> Vec<f64> {
    let at = |[x, y, z]: [usize; 3]| (x % N * N + y % N) * N + z % N;
    let cells = || (0..N * N * N).map(|i| [i / (N * N), i / N % N, i % N]);
    let mut u: Vec<f64> = cells().map(start).collect();
    for _ in 0..steps {
        let step = |place: [usize; 3]| {
            let mut around = [0.0; 6];
            for k in 0..3 {
                for (side, by) in [(0, N - 1), (1, 1)] {
                    let mut beside = place;
                    beside[k] += by;
                    around[2 * k + side] = u[at(beside)];
                }
            }
            next(u[at(place)], around)
        };
        u = cells().map(step).collect();
    }
    u
}

/// What a step needs; `'s` is the stream that it is at home on.
#[derive(Carry)]
struct Heat<'s> {
    /// The newest values, and where a step writes the next ones.
    u: Region<f64, On<'s>>,
    next: Region<f64, On<'s>>,
    /// How much the last step has changed, at most: one number, or several of which the largest is meant.
    change: Region<f64, On<'s>>,
    largest: AllReduce<'s, f64>,
    /// Its memory are the ghosts: a block, of which the neighbours write the outermost layer.
    inbox: Inbox<'s, f64, ByRange>,
    outbox: Outbox<'s, f64, ByRange>,
}

/// A face of the block: this rank's outermost layer, and the ghosts of the neighbour that are its copy.
struct Face {
    layer: Layout,
    ghosts: Out<f64>,
}

/// One step; nothing here waits.
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
            // What goes up is the last layer here, and the first one there; what goes down, the other way round.
            let (mine, its) = if up {
                (block.dims[k] - 2, 0)
            } else {
                (1, there.dims[k] - 1)
            };
            let ghosts = window.layout_to(beside, &there.layer(k, its)?);
            let layer = block.layer(k, mine)?;
            faces.push(Face { layer, ghosts });
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
        largest: AllReduce::open(&s, "change", Kernels::CHANGES)?,
        inbox,
        outbox,
    };
    let (graph, mut heat) = s.capture(heat, |s, mut heat| {
        for _ in 0..LOOK {
            heat = step(s, &kernels, &faces, heat)?;
        }
        kernels.change(s, &heat.u, &heat.next, &mut heat.change)?;
        heat.largest.max(s, &mut heat.change)?;
        Ok(heat)
    })?;

    let mut steps = 0;
    let last = loop {
        heat = graph.replay(&s, heat, 1)?;
        steps += LOOK;
        // The same numbers on all ranks, so that all of them stop here.
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
