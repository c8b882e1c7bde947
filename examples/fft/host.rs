//! The prelude and the kernels for host streams.

use prelude::*;
pub(crate) use tidegate::host::prelude;

use crate::square::{Complex, N, rows, times};

pub(crate) struct Kernels;

impl Kernels {
    pub(crate) fn new(_: &World) -> Result<Self> {
        Ok(Kernels)
    }

    /// Transforms rows.
    pub(crate) fn transform<'s>(
        &self,
        s: &Stream<'s>,
        from: &Region<Complex, On<'s>>,
        to: &mut Region<Complex, On<'s>>,
        factors: &Region<Complex, On<'s>>,
    ) -> Result<()> {
        let kernel = |from: &[Complex], to: &mut [Complex], factors: &[Complex]| {
            let rows = from.chunks(N).zip(to.chunks_mut(N));
            rows.for_each(|(from, to)| transform(from, to, factors));
        };
        s.launch(kernel, (from, to, factors))
    }

    /// Writes rows column by column: a column is a row of the rank that gets it.
    pub(crate) fn turn<'s>(
        &self,
        s: &Stream<'s>,
        from: &Region<Complex, On<'s>>,
        to: &mut Region<Complex, On<'s>>,
    ) -> Result<()> {
        let kernel = |from: &[Complex], to: &mut [Complex]| {
            let count = from.len() / N;
            for (at, row) in from.chunks(N).enumerate() {
                for (column, value) in row.iter().enumerate() {
                    to[column * count + at] = *value;
                }
            }
        };
        s.launch(kernel, (from, to))
    }

    /// Joins the blocks that have come. Each has a part of every row of this rank, one behind the other.
    pub(crate) fn join<'s>(
        &self,
        s: &Stream<'s>,
        from: &Region<Complex, On<'s>>,
        to: &mut Region<Complex, On<'s>>,
    ) -> Result<()> {
        let ranks = s.world().size();
        let kernel = move |from: &[Complex], to: &mut [Complex]| {
            let (count, mut rest) = (to.len() / N, from);
            for other in 0..ranks {
                let part = rows(other, ranks);
                let (block, more) = rest.split_at(count * part.len());
                rest = more;
                for (row, values) in to.chunks_mut(N).zip(block.chunks(part.len())) {
                    row[part.clone()].copy_from_slice(values);
                }
            }
        };
        s.launch(kernel, (from, to))
    }
}

/// Transforms a row: places with the same remainder first, and then twice as many together, until all are.
fn transform(from: &[Complex], to: &mut [Complex], factors: &[Complex]) {
    for (k, value) in (0_usize..).zip(from) {
        to[k.reverse_bits() >> (usize::BITS - N.ilog2())] = *value;
    }
    let mut half = 1;
    while half < N {
        for both in to.chunks_mut(2 * half) {
            let (even, odd) = both.split_at_mut(half);
            for (k, (a, b)) in even.iter_mut().zip(odd).enumerate() {
                let turned = times(factors[k * N / (2 * half)], *b);
                *b = [a[0] - turned[0], a[1] - turned[1]];
                *a = [a[0] + turned[0], a[1] + turned[1]];
            }
        }
        half *= 2;
    }
}
