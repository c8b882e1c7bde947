//! The heat equation in a cube whose opposite faces meet, spread over a grid of ranks: ghost faces that land in place.
//!
//! Each rank declares which ghosts of its neighbours it writes, as boxes of their blocks ([`Layout::subarray`],
//! [`RangeWindow`]'s `layout_to`); all ranks check that no two faces overlap. So a put gathers the outermost layer of one
//! block and scatters it into the ghosts of the other: nobody packs, nobody unpacks. While the faces are under way a kernel
//! computes all elements that need no ghost.
//!
//! Many steps, and the largest change over all ranks at their end, are recorded once. The host replays them, and looks at
//! that one number.
//!
//! Each step has the same sums in the same order wherever an element lies. So the result has the same bits on any number
//! of ranks; each rank compares its block with a serial run.
//!
//! Run it with `cargo run --example heat3d`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/heat3d`. `heat3d_cuda` is the same on GPUs: the solver is
//! one text for both (`heat3d/solver.rs`), and a program has its prelude and its kernels.

#[path = "heat3d/solver.rs"]
mod solver;

use prelude::*;
use tidegate::host::prelude;

/// The kernels, for blocks of these sides (ghosts included).
struct Kernels {
    dims: [usize; 3],
}

impl Kernels {
    /// How many numbers `change` leaves.
    const CHANGES: usize = 1;

    fn new(_: &World, dims: [usize; 3]) -> Result<Self> {
        Ok(Kernels { dims })
    }

    /// A step of the elements that have no ghost beside them.
    fn inner<'s>(
        &self,
        s: &Stream<'s>,
        u: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
    ) -> Result<()> {
        let dims = self.dims;
        let kernel = move |u: &[f64], next: &mut [f64]| {
            for (at, beside) in elements(dims).filter(|(at, _)| !is_in_layer(dims, 1, *at)) {
                next[at] = solver::next(u[at], beside.map(|at| u[at]));
            }
        };
        s.launch(kernel, (u, next))
    }

    /// A step of the others.
    fn outer<'s>(
        &self,
        s: &Stream<'s>,
        ghosts: Memory<'_, 's, f64>,
        u: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
    ) -> Result<()> {
        let dims = self.dims;
        let kernel = move |ghosts: &[f64], u: &[f64], next: &mut [f64]| {
            let value = |at| match is_in_layer(dims, 0, at) {
                true => ghosts[at],
                false => u[at],
            };
            for (at, beside) in elements(dims).filter(|(at, _)| is_in_layer(dims, 1, *at)) {
                next[at] = solver::next(u[at], beside.map(value));
            }
        };
        s.launch(kernel, (ghosts, u, next))
    }

    /// The largest difference between two arrays. (Ghosts of both are zero.)
    fn change<'s>(
        &self,
        s: &Stream<'s>,
        u: &Region<f64, On<'s>>,
        before: &Region<f64, On<'s>>,
        change: &mut Region<f64, On<'s>>,
    ) -> Result<()> {
        let kernel = |u: &[f64], before: &[f64], change: &mut [f64]| {
            let differences = u.iter().zip(before).map(|(u, before)| (u - before).abs());
            change[0] = differences.fold(0.0, f64::max);
        };
        s.launch(kernel, (u, before, change))
    }
}

/// The elements of a block that are no ghosts, and those beside each.
fn elements([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, [usize; 6])> {
    let rows = (1..a - 1).flat_map(move |x| (1..b - 1).map(move |y| (x * b + y) * c));
    rows.flat_map(move |row| row + 1..row + c - 1)
        .map(move |at| (at, [at - b * c, at + b * c, at - c, at + c, at - 1, at + 1]))
}

/// Whether an element is in a layer, of which number 0 are the ghosts.
fn is_in_layer([a, b, c]: [usize; 3], layer: usize, at: usize) -> bool {
    let place = [(at / (b * c), a), (at / c % b, b), (at % c, c)];
    place
        .into_iter()
        .any(|(at, dim)| at == layer || at + layer + 1 == dim)
}

fn main() -> Result<()> {
    solver::run()
}
