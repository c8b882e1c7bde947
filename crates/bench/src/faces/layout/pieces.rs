//! The 27 pieces of a block, prepared for the kernels that sum copies.
//!
//! A block has, in each dimension, a first coordinate, a last one, and those between. That gives 27
//! disjoint pieces: one for each direction (the points that touch it, without those that touch
//! more), and the interior. All points of a piece hear from the same neighbours, so a kernel can
//! treat it with the same code throughout. In each dimension a point has ([`How`]) one copy, or two
//! in the block (between two elements), or one in the block and one at a neighbour.

use super::Direction;
use crate::faces::params::Size;

/// How many copies a point has in one dimension, and where the second one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// One copy.
    Single,
    /// The last point of an element, and the first of the next.
    Pair,
    /// One in the block, one at the neighbour.
    Remote,
}

/// An index that is affine in a point's and its element's coordinates.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Affine {
    /// From a point to the next of its element, in each dimension; 0 in dimensions that a message
    /// does not have.
    pub(crate) i: [usize; 3],
    /// From an element to the next.
    pub(crate) j: [usize; 3],
}

impl Affine {
    /// Indices of a block.
    pub(crate) fn block(size: Size) -> Affine {
        Affine::along(size, |_| true)
    }

    /// Indices of a message that extends in those dimensions for which `has` says so.
    fn along(size: Size, has: impl Fn(usize) -> bool) -> Affine {
        let mut strides = Affine::default();
        let mut next = 1;
        for d in (0..3).filter(|&d| has(d)) {
            strides.i[d] = next;
            next *= size.n;
        }
        for d in (0..3).filter(|&d| has(d)) {
            strides.j[d] = next;
            next *= size.m[d];
        }
        strides
    }

    /// The index of point `i` of element `j`.
    pub(crate) fn at(&self, i: [usize; 3], j: [usize; 3]) -> usize {
        (0..3).map(|d| i[d] * self.i[d] + j[d] * self.j[d]).sum()
    }
}

/// A point, or a row of equidistant ones, along one dimension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// How many there are.
    pub(crate) count: usize,
    /// Whether the next one is at the same place in the next element; else it is the next point.
    pub(crate) by_element: bool,
    /// Their copies in this dimension.
    pub(crate) how: How,
    /// This dimension's part of the index of the first point, in each source of the piece. Of a
    /// pair, the lower copy.
    pub(crate) at: [usize; 8],
}

/// Where a piece finds copies: in the block, or in what came from one neighbour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// The set of dimensions (bit `d`) in which these copies are a neighbour's: 0 for the block.
    pub(crate) set: usize,
    /// The direction of that neighbour; `None` for the block.
    pub(crate) direction: Option<Direction>,
    /// Where the copies are.
    pub(crate) strides: Affine,
    /// From the lower copy of a pair to the upper one, in each dimension; 0 in dimensions that a
    /// message does not have.
    pub(crate) pair: [usize; 3],
}

/// One piece; see the module.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// The block, and every neighbour (up to 7) that these points hear from.
    pub(crate) sources: Vec<Source>,
    /// The dimensions in which there is a neighbour (bit `d`).
    pub(crate) remote: usize,
    /// Which dimension is the innermost loop, the middle one, the outermost one.
    pub(crate) order: [usize; 3],
    /// The innermost loop: rows of points; those of pairs come last.
    pub(crate) rows: Vec<Line>,
    /// The two loops around it (middle, outer): one point each.
    pub(crate) around: [Vec<Line>; 2],
}

impl Piece {
    /// The piece at `side` (all zero for the interior); `present(d, s)` says whether there is a
    /// neighbour at side `s` of dimension `d`.
    pub(crate) fn new(size: Size, side: [i8; 3], present: impl Fn(usize, i8) -> bool) -> Piece {
        let remote: usize = (0..3)
            .filter(|&d| present(d, side[d]))
            .map(|d| 1 << d)
            .sum();
        let sources: Vec<Source> = (0..8usize)
            .filter(|set| set & !remote == 0)
            .map(|set| {
                let inside = |d: usize| set >> d & 1 == 1;
                let strides = Affine::along(size, |d| !inside(d));
                // An element forth, and all its points back.
                let pair = |d: usize| {
                    if inside(d) {
                        0
                    } else {
                        strides.j[d] - (size.n - 1) * strides.i[d]
                    }
                };
                Source {
                    set,
                    direction: Direction::from_offset(
                        [0, 1, 2].map(|d| if inside(d) { side[d] } else { 0 }),
                    ),
                    strides,
                    pair: [0, 1, 2].map(pair),
                }
            })
            .collect();
        // The innermost loop is the first dimension that has more than one point: where it is x,
        // rows are contiguous.
        let mut order = [0, 1, 2];
        order.sort_by_key(|&d| side[d] != 0);
        let lines = |d: usize, rows: bool| {
            let line = |i: usize, j: usize, count: usize, how: How| {
                let mut at = [0; 8];
                for source in &sources {
                    at[source.set] = i * source.strides.i[d] + j * source.strides.j[d];
                }
                Line {
                    count,
                    by_element: how == How::Pair,
                    how,
                    at,
                }
            };
            let (n, m) = (size.n, size.m[d]);
            let end = if remote >> d & 1 == 1 {
                How::Remote
            } else {
                How::Single
            };
            match side[d] {
                -1 => vec![line(0, 0, 1, end)],
                1 => vec![line(n - 1, m - 1, 1, end)],
                _ if rows => {
                    let singles = (0..m).map(|j| line(1, j, n - 2, How::Single));
                    let pairs = (m > 1).then(|| line(n - 1, 0, m - 1, How::Pair));
                    singles.chain(pairs).collect()
                }
                // Everything but the first and the last, which are other pieces.
                _ => (0..m)
                    .flat_map(|j| (1..n).map(move |i| (i, j)))
                    .filter(|&(i, j)| i < n - 1 || j < m - 1)
                    .map(|(i, j)| line(i, j, 1, if i == n - 1 { How::Pair } else { How::Single }))
                    .collect(),
            }
        };
        let (rows, middle, outer) = (
            lines(order[0], true),
            lines(order[1], false),
            lines(order[2], false),
        );
        Piece {
            sources,
            remote,
            order,
            rows,
            around: [middle, outer],
        }
    }
}
