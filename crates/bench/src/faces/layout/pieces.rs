//! The 27 pieces of a block, prepared for the kernels that sum copies.
//!
//! A block has, in each dimension, a first coordinate, a last one, and those between. That gives 27 disjoint pieces: one
//! for each direction (the points that touch it, without those that touch more), and the interior. All points of a
//! piece hear from the same neighbours, so a kernel can treat it with the same code throughout. In each dimension a point has
//! ([`How`]) one copy, or two in the block (between two elements), or one in the block and one at a neighbour.

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
    /// From a point to the next of its element, in each dimension; 0 in dimensions that a message does not have.
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
    /// The first point within its element. Of a pair, the copy in the lower element.
    pub(crate) i: usize,
    /// Its element.
    pub(crate) j: usize,
    /// How many there are.
    pub(crate) count: usize,
    /// Whether the next one is at the same place in the next element; else it is the next point.
    pub(crate) by_element: bool,
    /// Their copies in this dimension.
    pub(crate) how: How,
}

/// One piece; see the module.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// For each set of dimensions (bit `d`) in which a copy is a neighbour's: the direction of that neighbour (`None` for the
    /// empty set: the block itself), and how to find the copy. `None` where there is no such neighbour.
    pub(crate) sources: [Option<(Option<Direction>, Affine)>; 8],
    /// Which dimension is the innermost loop, the middle one, the outermost one.
    pub(crate) order: [usize; 3],
    /// The innermost loop: rows of points.
    pub(crate) rows: Vec<Line>,
    /// The two loops around it (middle, outer): single points only.
    pub(crate) around: [Vec<Line>; 2],
    /// From the lower copy of a pair to the upper one is an element forth and this many points back.
    pub(crate) back: usize,
}

impl Piece {
    /// The piece at `side` (all zero for the interior); `present(d, s)` says whether there is a neighbour at side `s` of
    /// dimension `d`.
    pub(crate) fn new(size: Size, side: [i8; 3], present: impl Fn(usize, i8) -> bool) -> Piece {
        let remote = [0, 1, 2].map(|d| present(d, side[d]));
        let sources = std::array::from_fn(|set| {
            let inside = |d: usize| set >> d & 1 == 1;
            if (0..3).any(|d| inside(d) && !remote[d]) {
                return None;
            }
            let offset = [0, 1, 2].map(|d| if inside(d) { side[d] } else { 0 });
            Some((Direction::from_offset(offset), Affine::along(size, |d| !inside(d))))
        });
        // The innermost loop is the first dimension that has more than one point: where it is x, rows are contiguous.
        let mut order = [0, 1, 2];
        order.sort_by_key(|&d| side[d] != 0);
        let of = |d: usize, rows: bool| match side[d] {
            0 => between(size.n, size.m[d], rows),
            s => {
                let (i, j) = if s < 0 { (0, 0) } else { (size.n - 1, size.m[d] - 1) };
                let how = if remote[d] { How::Remote } else { How::Single };
                vec![Line { i, j, count: 1, by_element: false, how }]
            }
        };
        Piece {
            sources,
            order,
            rows: of(order[0], true),
            around: [of(order[1], false), of(order[2], false)],
            back: size.n - 1,
        }
    }
}

/// The points of a dimension without the first and the last, as rows or one by one.
fn between(n: usize, m: usize, rows: bool) -> Vec<Line> {
    let single = |i, j, count| Line { i, j, count, by_element: false, how: How::Single };
    let pair = |j, count| Line { i: n - 1, j, count, by_element: true, how: How::Pair };
    let mut lines = Vec::new();
    for j in 0..m {
        if rows {
            lines.push(single(1, j, n - 2));
        } else {
            lines.extend((1..n - 1).map(|i| single(i, j, 1)));
            if j + 1 < m {
                lines.push(pair(j, 1));
            }
        }
    }
    if rows && m > 1 {
        lines.push(pair(0, m - 1));
    }
    lines
}
