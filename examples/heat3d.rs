//! The heat equation in a cube whose opposite faces meet, spread over all ranks: ghost faces that land in place.
//!
//! The memory of the window *is* the block with its layer of ghosts. Each rank declares the six faces of its neighbours'
//! ghosts that it writes, as boxes of their blocks ([`Layout::subarray`], [`Window::layout_to`]); all ranks check that no two
//! faces overlap. So a put gathers the outermost layer of the one block and scatters it into the ghosts of the other: nobody
//! packs, nobody unpacks. What no neighbour writes remains this rank's ([`Exposed::rest`]): with that a kernel computes the
//! inner elements while the faces are under way.
//!
//! Each step has the same sums in the same order wherever an element lies, so the result has the same bits on any number
//! of ranks; each rank compares its block with a serial run.
//!
//! Run it with `cargo run --example heat3d`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/heat3d`.

use std::ops::Range;

use tidegate::Cells;
use tidegate::host::prelude::*;

/// Elements along an edge of the cube.
const N: usize = 18;
/// How much of the difference to its neighbours an element takes over in a step.
const RATE: f64 = 1.0 / 8.0;
/// The steps end when no element changes by more.
const SMALL: f64 = 1e-3;
/// How many steps there are between two looks at the change.
const LOOK: usize = 20;

/// A block of the cube, with a layer of ghosts around it.
#[derive(Clone, Debug)]
struct Block {
    /// The elements of the cube, in each dimension.
    of_cube: [Range<usize>; 3],
    /// The size with ghosts.
    dims: [usize; 3],
}

impl Block {
    /// The ranks stand in a grid, the last dimension fastest; this is the block at a place of it.
    fn at(grid: [usize; 3], place: [usize; 3]) -> Self {
        let of_cube = [0, 1, 2].map(|k| place[k] * N / grid[k]..(place[k] + 1) * N / grid[k]);
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

    /// The rows of elements that are `margin` or further from the outside: where each begins, and its length.
    fn rows(&self, margin: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let [xs, ys, zs] = self.dims.map(|dim| margin..(dim - margin).max(margin));
        let row = move |x, y| (self.index([x, y, zs.start]), zs.len());
        xs.flat_map(move |x| {
            let row = row.clone();
            ys.clone().map(move |y| row(x, y))
        })
    }

    /// Whether an element is one of the outermost that are no ghosts.
    fn is_outer(&self, place: [usize; 3]) -> bool {
        (0..3).any(|k| place[k] == 1 || place[k] == self.dims[k] - 2)
    }

    /// The elements that are no ghosts.
    fn own(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let [xs, ys, zs] = self.dims.map(|dim| 1..dim - 1);
        xs.flat_map(move |x| {
            let zs = zs.clone();
            ys.clone()
                .flat_map(move |y| zs.clone().map(move |z| [x, y, z]))
        })
    }

    /// What an element becomes in a step.
    fn next(&self, u: impl Fn(usize) -> f64, place: [usize; 3]) -> f64 {
        let at = self.index(place);
        let mut sum = 0.0;
        for stride in [self.dims[1] * self.dims[2], self.dims[2], 1] {
            sum += u(at - stride) + u(at + stride);
        }
        u(at) + RATE * (sum - 6.0 * u(at))
    }
}

/// The ranks as a grid: each prime factor goes to the dimension that has fewest.
fn grid(ranks: usize) -> [usize; 3] {
    let (mut grid, mut left, mut factor) = ([1; 3], ranks, 2);
    while left > 1 {
        if left % factor == 0 {
            *grid.iter_mut().min().expect("there are three") *= factor;
            left /= factor;
        } else {
            factor += 1;
        }
    }
    grid
}

/// The temperature at first.
fn start([x, y, z]: [usize; 3]) -> f64 {
    ((x * 7 + y * 5 + z * 3) % 11) as f64 - 5.0 + if x < N / 2 { 4.0 } else { 0.0 }
}

/// So many steps of the whole cube, one element after the other.
fn serial(steps: usize) -> Vec<f64> {
    let cube = Block::at([1; 3], [0; 3]);
    let mut u: Vec<f64> = vec![0.0; cube.len()];
    for place in cube.own() {
        u[cube.index(place)] = start(place.map(|at| at - 1));
    }
    for _ in 0..steps {
        let wrapped = |at: usize| match at {
            0 => N,
            at if at == N + 1 => 1,
            at => at,
        };
        for x in 0..N + 2 {
            for y in 0..N + 2 {
                for z in 0..N + 2 {
                    u[cube.index([x, y, z])] = u[cube.index([x, y, z].map(wrapped))];
                }
            }
        }
        let before = u.clone();
        for place in cube.own() {
            u[cube.index(place)] = cube.next(|at| before[at], place);
        }
    }
    u
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    let grid = grid(ranks);
    assert!(
        grid.iter().all(|side| *side <= N),
        "no rank is without an element"
    );
    let place = [
        rank / (grid[1] * grid[2]),
        rank / grid[2] % grid[1],
        rank % grid[2],
    ];
    let block = Block::at(grid, place);

    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("block", block.len());
    // For each face: this rank's outermost layer, and the ghosts of the neighbour that are its copy.
    let mut faces = Vec::new();
    for k in 0..3 {
        for up in [false, true] {
            let mut beside = place;
            beside[k] = (place[k] + if up { 1 } else { grid[k] - 1 }) % grid[k];
            let neighbour = Block::at(grid, beside);
            let rank = (beside[0] * grid[1] + beside[1]) * grid[2] + beside[2];
            let (layer, ghosts) = if up {
                (block.layer(k, block.dims[k] - 2)?, neighbour.layer(k, 0)?)
            } else {
                (
                    block.layer(k, 1)?,
                    neighbour.layer(k, neighbour.dims[k] - 1)?,
                )
            };
            faces.push((layer, window.layout_to(rank, &ghosts)));
        }
    }
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut change = AllReduce::open(&s, "change", 1)?;

    // The newest values; the window's memory gets a copy in each step, and the ghosts beside it.
    let mut newest = Region::<f64, _>::zeroed(&world, block.len())?;
    for place in block.own() {
        let in_cube = [0, 1, 2].map(|k| block.of_cube[k].start + place[k] - 1);
        newest[block.index(place)] = start(in_cube);
    }
    let mut newest = newest.on(&s)?;
    let mut largest = Region::zeroed(&world, 1)?.on(&s)?;

    let mut steps = 0;
    let last = loop {
        let own = block.clone();
        let copy = move |newest: &[f64], u: &mut [f64]| {
            for (at, len) in own.rows(1) {
                u[at..][..len].copy_from_slice(&newest[at..][..len]);
            }
        };
        s.launch(copy, (&newest, inbox.memory_mut()))?;

        let exposed = inbox.post(&s)?;
        let mut epoch = outbox.start();
        for (layer, ghosts) in &faces {
            epoch.put(newest.with(layer)?, *ghosts)?;
        }
        outbox = epoch.complete(&s)?;

        // Meanwhile what has no ghost beside it.
        let own = block.clone();
        let inner = move |u: Cells<'_, f64>, newest: &mut [f64], largest: &mut [f64]| {
            largest[0] = 0.0;
            for place in own.own().filter(|place| !own.is_outer(*place)) {
                let (at, next) = (own.index(place), own.next(|at| u.get(at), place));
                largest[0] = (next - u.get(at)).abs().max(largest[0]);
                newest[at] = next;
            }
        };
        s.launch(inner, (exposed.rest()?, &mut newest, &mut largest))?;

        inbox = exposed.wait(&s)?;
        let own = block.clone();
        let outer = move |u: &[f64], newest: &mut [f64], largest: &mut [f64]| {
            for place in own.own().filter(|place| own.is_outer(*place)) {
                let (at, next) = (own.index(place), own.next(|at| u[at], place));
                largest[0] = (next - u[at]).abs().max(largest[0]);
                newest[at] = next;
            }
        };
        s.launch(outer, (inbox.memory(), &mut newest, &mut largest))?;
        change.max(&s, &mut largest)?;

        steps += 1;
        if steps % LOOK == 0 {
            // The same number on all ranks, so that all of them stop here.
            let now = largest.into_host(&s)?;
            if now[0] < SMALL {
                break now[0];
            }
            largest = now.on(&s)?;
        }
    };

    let (newest, expected) = (newest.into_host(&s)?, serial(steps));
    let cube = Block::at([1; 3], [0; 3]);
    for place in block.own() {
        let in_cube = [0, 1, 2].map(|k| block.of_cube[k].start + place[k]);
        let (is, should) = (newest[block.index(place)], expected[cube.index(in_cube)]);
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
