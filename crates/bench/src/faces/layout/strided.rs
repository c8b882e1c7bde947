//! A message as strides within the block.

use super::{Affine, Direction};
use crate::faces::params::Size;

/// One dimension of a strided set: `count` steps of `stride` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dim {
    /// How many values (or rows of the dimensions before).
    pub count: usize,
    /// From one to the next, in values.
    pub stride: usize,
}

/// A set of indices `base + sum of k_d * stride_d` for all `0 <= k_d < count_d`, the first
/// dimension fastest.
///
/// Dimensions that continue each other are merged, and those of one step left out, so there are
/// between 0 (a corner) and 3 (a y face: points along x, those along z and the elements along x in
/// one, elements along z).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Strided {
    /// The index of the first value.
    pub base: usize,
    dims: Vec<Dim>,
}

impl Strided {
    /// The values of a block that make up the message to `d`.
    pub(crate) fn message(size: Size, d: Direction) -> Strided {
        let block = Affine::block(size);
        let side = d.offset();
        let (mut i, mut j) = ([0; 3], [0; 3]);
        for k in (0..3).filter(|&k| side[k] > 0) {
            (i[k], j[k]) = (size.n - 1, size.m[k] - 1);
        }
        let along = || (0..3).filter(|&k| side[k] == 0);
        let points = along().map(|k| Dim {
            count: size.n,
            stride: block.i[k],
        });
        let elements = along().map(|k| Dim {
            count: size.m[k],
            stride: block.j[k],
        });
        let mut dims: Vec<Dim> = Vec::new();
        for dim in points.chain(elements).filter(|dim| dim.count > 1) {
            match dims.last_mut() {
                Some(last) if last.count * last.stride == dim.stride => last.count *= dim.count,
                _ => dims.push(dim),
            }
        }
        Strided {
            base: block.at(i, j),
            dims,
        }
    }

    /// The dimensions, the fastest first; none for a single value.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// How many indices there are.
    pub fn len(&self) -> usize {
        self.dims.iter().map(|d| d.count).product()
    }

    /// Never: a message has at least one value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dimension that runs fastest: its count and stride, `(1, 1)` for a single value.
    pub fn row(&self) -> Dim {
        self.dims.first().copied().unwrap_or(Dim {
            count: 1,
            stride: 1,
        })
    }

    /// Calls `visit` with the first index of every [row](Strided::row), in order. Does not
    /// allocate.
    pub fn for_each_row(&self, mut visit: impl FnMut(usize)) {
        const ONE: Dim = Dim {
            count: 1,
            stride: 0,
        };
        let dim = |k: usize| self.dims.get(k).copied().unwrap_or(ONE);
        let (a, b) = (dim(1), dim(2));
        debug_assert!(self.dims.len() <= 3);
        for kb in 0..b.count {
            let start = self.base + kb * b.stride;
            for ka in 0..a.count {
                visit(start + ka * a.stride);
            }
        }
    }

    /// All indices, in order: for tests and tables.
    pub fn indices(&self) -> Vec<usize> {
        let row = self.row();
        let mut all = Vec::with_capacity(self.len());
        self.for_each_row(|start| all.extend((0..row.count).map(|k| start + k * row.stride)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { m: [2, 3, 4], n: 5 };

    fn dims(d: [i8; 3]) -> Vec<(usize, usize)> {
        let s = Strided::message(SIZE, Direction::from_offset(d).unwrap());
        s.dims().iter().map(|d| (d.count, d.stride)).collect()
    }

    #[test]
    fn dimensions_are_merged_where_they_can_be() {
        assert_eq!(dims([-1, 0, 0]), [(25, 5), (12, 250)]);
        assert_eq!(dims([0, 1, 0]), [(5, 1), (10, 25), (4, 750)]);
        assert_eq!(dims([0, 0, 1]), [(25, 1), (6, 125)]);
        assert_eq!(dims([0, 1, -1]), [(5, 1), (2, 125)]);
        assert_eq!(dims([1, 1, 1]), []);
    }
}
