//! A Jacobi solver on a two-dimensional grid that is spread over all ranks: the smallest real halo exchange.
//!
//! It solves Laplace's equation in a square whose border has the values of `x^2 - y^2`. That function solves the equation,
//! and the usual five-point average too, without any error: so the answer is known, and the program checks it.
//!
//! Run it with `cargo run --example halo2d`, or on 8 ranks: `cargo run --bin tidegate -- run -n 8 target/debug/examples/halo2d`.

use tidegate::prelude::*;

/// Unknowns along each side of the whole square.
const N: usize = 24;
/// How wrong the answer may be.
const TOLERANCE: f64 = 1e-9;

/// This rank's block of the square.
#[derive(Clone)]
struct Block {
    width: usize,
    height: usize,
    /// Where its first unknown is in the whole square.
    x: usize,
    y: usize,
    /// The sides at which there is a neighbour, in the order of their slots.
    sides: Vec<Side>,
}

#[derive(Clone)]
struct Side {
    neighbour: usize,
    /// The outermost unknowns along this side: what the neighbour needs.
    edge: Layout,
    /// Where what the neighbour sends belongs: the first ghost cell, and from each to the next.
    ghosts: (usize, usize),
    /// Tells the sides apart: the key of a slot is the side of the one who *sends*.
    key: u64,
}

impl Block {
    fn new(rank: usize, size: usize) -> Result<Self> {
        // The most nearly square grid of ranks.
        let rows = (1..=size)
            .rfind(|r| size.is_multiple_of(*r) && r * r <= size)
            .unwrap_or(1);
        let columns = size / rows;
        let (column, row) = (rank % columns, rank / columns);
        let part = |i: usize, of: usize| (N * i / of, N * (i + 1) / of - N * i / of);
        let ((x, width), (y, height)) = (part(column, columns), part(row, rows));
        let mut block = Block {
            width,
            height,
            x,
            y,
            sides: Vec::new(),
        };
        let (w, h) = (width, height);
        let vertical = |x| (block.at(x, 1), (h, block.at(0, 1)));
        let horizontal = |y| (block.at(1, y), (w, 1));
        // West and east are columns: their elements lie a row apart. South and north are rows, contiguous.
        let sides = [
            (column > 0, rank.wrapping_sub(1), vertical(1), vertical(0)),
            (column + 1 < columns, rank + 1, vertical(w), vertical(w + 1)),
            (
                row > 0,
                rank.wrapping_sub(columns),
                horizontal(1),
                horizontal(0),
            ),
            (
                row + 1 < rows,
                rank + columns,
                horizontal(h),
                horizontal(h + 1),
            ),
        ];
        for (key, (exists, neighbour, (first, (count, stride)), ghosts)) in (0..).zip(sides) {
            if exists {
                let edge = Layout::strided(first, &[(count as u32, stride as i32)])?;
                let ghosts = (ghosts.0, stride);
                block.sides.push(Side {
                    neighbour,
                    edge,
                    ghosts,
                    key,
                });
            }
        }
        Ok(block)
    }

    /// The index of a cell; those with a coordinate of 0 or beyond the last unknown are ghosts.
    fn at(&self, x: usize, y: usize) -> usize {
        y * (self.width + 2) + x
    }

    /// The known solution at a cell.
    fn exact(&self, x: usize, y: usize) -> f64 {
        let (x, y) = (
            (self.x + x) as f64 / (N + 1) as f64,
            (self.y + y) as f64 / (N + 1) as f64,
        );
        x * x - y * y
    }

    /// Zero everywhere but on the border of the whole square.
    fn start(&self) -> Vec<f64> {
        let mut u = vec![0.0; (self.width + 2) * (self.height + 2)];
        for y in 0..self.height + 2 {
            for x in 0..self.width + 2 {
                let (gx, gy) = (self.x + x, self.y + y);
                if gx == 0 || gx == N + 1 || gy == 0 || gy == N + 1 {
                    u[self.at(x, y)] = self.exact(x, y);
                }
            }
        }
        u
    }

    /// The largest error of the unknowns.
    fn error(&self, u: &[f64]) -> f64 {
        let cells = (1..=self.height).flat_map(|y| (1..=self.width).map(move |x| (x, y)));
        cells
            .map(|(x, y)| (u[self.at(x, y)] - self.exact(x, y)).abs())
            .fold(0.0, f64::max)
    }

    /// The kernel: fills the ghosts of `from` with what came, and averages into `to`.
    fn sweep(&self, halo: Slots<'_, f64>, from: &mut [f64], to: &mut [f64]) {
        for (side, received) in self.sides.iter().zip(halo.iter()) {
            let (first, stride) = side.ghosts;
            received
                .iter()
                .enumerate()
                .for_each(|(k, value)| from[first + k * stride] = *value);
        }
        for y in 1..=self.height {
            for x in 1..=self.width {
                let [w, e] = [x - 1, x + 1].map(|x| from[self.at(x, y)]);
                let [s, n] = [y - 1, y + 1].map(|y| from[self.at(x, y)]);
                to[self.at(x, y)] = (w + e + s + n) / 4.0;
            }
        }
    }
}

/// Two arrays, used by turns.
#[derive(Carry)]
struct Jacobi<'s> {
    u: Region<f64, On<'s>>,
    v: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
}

/// One sweep from `u` to `v`; then they change places.
fn half<'s>(s: &Stream<'s>, block: &Block, mut j: Jacobi<'s>) -> Result<Jacobi<'s>> {
    let exposed = j.inbox.post(s)?;
    let mut epoch = j.outbox.start();
    for (slot, side) in (0..).map(Slot).zip(&block.sides) {
        // The put gathers the edge while it sends: a column needs no packing.
        epoch.put(j.u.with(&side.edge)?, slot)?;
    }
    let outbox = epoch.complete(s)?;
    let inbox = exposed.wait(s)?;
    let kernel = block.clone();
    let sweep =
        move |halo: Slots<'_, f64>, from: &mut [f64], to: &mut [f64]| kernel.sweep(halo, from, to);
    s.launch(sweep, (inbox.view(), &mut j.u, &mut j.v))?;
    Ok(Jacobi {
        u: j.v,
        v: j.u,
        inbox,
        outbox,
    })
}

fn main() -> Result<()> {
    let world: World = World::init()?;
    let block = Block::new(world.rank(), world.size())?;

    stream!(let s = world.stream()?);
    let mut window = Window::by_slot("halo");
    for side in &block.sides {
        // What comes from a neighbour in the west was sent by it to the east: keys 0 and 1, 2 and 3 belong together.
        window = window
            .slot_from(side.neighbour, side.key ^ 1, side.edge.count())
            .slot_to(side.neighbour, side.key);
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

    // A step that ends with its arrays swapped could not be replayed (capture would say so): record two halves, after
    // which everything is where it was.
    let (graph, back) = s.capture(j, |s, j| half(s, &block, half(s, &block, j)?))?;
    j = back;
    let mut sweeps = 0;
    let error = loop {
        j = graph.replay(&s, j, 100)?;
        sweeps += 200;
        // Looking at the result costs a synchronisation, so it is done only now and then.
        let u = j.u.into_host(&s)?;
        let error = block.error(&u);
        j.u = u.on(&s)?;
        // All ranks must stop together.
        let errors = world.gather("error", error.to_ne_bytes().to_vec())?;
        let worst = errors
            .iter()
            .map(|e| f64::from_ne_bytes(e.as_slice().try_into().unwrap()))
            .fold(0.0, f64::max);
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
