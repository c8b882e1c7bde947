//! The prelude and the kernels for host streams.

use prelude::*;
pub(crate) use tidegate::host::prelude;

use crate::block::heated;

/// The kernels, for blocks of these sides (including ghosts).
pub(crate) struct Kernels {
    dims: [usize; 3],
}

impl Kernels {
    /// How many numbers `change` writes.
    pub(crate) const CHANGES: usize = 1;

    pub(crate) fn new(_: &World, dims: [usize; 3]) -> Result<Self> {
        Ok(Kernels { dims })
    }

    /// A step of the elements without a ghost beside them.
    pub(crate) fn inner<'s>(
        &self,
        s: &Stream<'s>,
        u: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
    ) -> Result<()> {
        let dims = self.dims;
        let kernel = move |u: &[f64], next: &mut [f64]| {
            for (at, beside) in elements(dims).filter(|(at, _)| !is_in_layer(dims, 1, *at)) {
                next[at] = heated(u[at], beside.map(|at| u[at]));
            }
        };
        s.launch(kernel, (u, next))
    }

    /// A step of the other elements.
    pub(crate) fn outer<'s>(
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
                next[at] = heated(u[at], beside.map(value));
            }
        };
        s.launch(kernel, (ghosts, u, next))
    }

    /// The largest difference between two arrays. (The ghosts of both are zero.)
    pub(crate) fn change<'s>(
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

/// The elements of a block that are not ghosts, each with its neighbours.
fn elements([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, [usize; 6])> {
    let rows = (1..a - 1).flat_map(move |x| (1..b - 1).map(move |y| (x * b + y) * c));
    rows.flat_map(move |row| row + 1..row + c - 1)
        .map(move |at| (at, [at - b * c, at + b * c, at - c, at + c, at - 1, at + 1]))
}

/// Whether an element lies in a layer. The ghosts are layer 0.
fn is_in_layer([a, b, c]: [usize; 3], layer: usize, at: usize) -> bool {
    let place = [(at / (b * c), a), (at / c % b, b), (at % c, c)];
    place
        .into_iter()
        .any(|(at, dim)| at == layer || at + layer + 1 == dim)
}
