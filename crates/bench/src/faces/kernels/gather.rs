//! Sums of all copies of a point: what `unpack` and `compute` have in common.
//!
//! A [`Piece`] of the block is walked row by row. In each dimension, the points of a row have one copy, two in the block, or
//! one in the block and one at a neighbour: 27 combinations, each of which has inner loop of its own. Indices are affine along a row,
//! so nothing is looked up in tables that grow with the block.

use super::{Points, Slots, Values};
use crate::faces::layout::{How, Line, Piece};

/// [`How`], as a constant.
const SINGLE: u8 = How::Single as u8;
const PAIR: u8 = How::Pair as u8;
const REMOTE: u8 = How::Remote as u8;

/// Where the copies of a row are in one source: the block or one message.
#[derive(Clone, Copy, Default)]
struct Row {
    /// The first point.
    start: usize,
    /// From a point of the row to the next.
    step: usize,
    /// From the lower copy of a pair to the upper, in each dimension.
    pair: [usize; 3],
}

/// Replaces each point of the piece by the sum of all its copies. Points with a single copy are not touched.
pub(super) fn sum_copies<P: Points + ?Sized, S: Slots + ?Sized>(piece: &Piece, u: &mut P, slots: &S) {
    let slots: [Option<S::Slot<'_>>; 8] = std::array::from_fn(|set| {
        let (direction, _) = piece.sources[set]?;
        Some(slots.slot(direction?))
    });
    let [inner, middle, outer] = piece.order;
    let mut rows = piece.sources.map(|source| {
        let mut row = Row::default();
        if let Some((_, strides)) = source {
            for d in 0..3 {
                // Zero in the dimensions that a message does not have: no pairs there.
                row.pair[d] = strides.j[d].saturating_sub(piece.back * strides.i[d]);
            }
        }
        row
    });
    let used: [bool; 8] = std::array::from_fn(|set| piece.sources[set].is_some());
    let strides = piece.sources.map(|s| s.map(|(_, strides)| strides).unwrap_or_default());
    let at = |set: usize, d: usize, line: &Line| line.i * strides[set].i[d] + line.j * strides[set].j[d];

    let mut how = [SINGLE; 3];
    for far in &piece.around[1] {
        how[outer] = far.how as u8;
        for near in &piece.around[0] {
            how[middle] = near.how as u8;
            for line in &piece.rows {
                how[inner] = line.how as u8;
                if how == [SINGLE; 3] {
                    continue;
                }
                for set in (0..8).filter(|&set| used[set]) {
                    rows[set].start = at(set, outer, far) + at(set, middle, near) + at(set, inner, line);
                    rows[set].step = if line.by_element { strides[set].j[inner] } else { strides[set].i[inner] };
                }
                dispatch(how, u, &slots, &rows, line.count);
            }
        }
    }
}

/// Chooses the inner loop.
#[inline]
fn dispatch<P: Points + ?Sized, V: Values>(
    how: [u8; 3],
    u: &mut P,
    slots: &[Option<V>; 8],
    rows: &[Row; 8],
    count: usize,
) {
    macro_rules! choose {
        ($($x:ident $y:ident $z:ident;)*) => {
            match how {
                $([$x, $y, $z] => sum_row::<P, V, $x, $y, $z>(u, slots, rows, count),)*
                _ => {}
            }
        };
    }
    choose! {
        PAIR   SINGLE SINGLE; REMOTE SINGLE SINGLE;
        SINGLE PAIR   SINGLE; PAIR   PAIR   SINGLE; REMOTE PAIR   SINGLE;
        SINGLE REMOTE SINGLE; PAIR   REMOTE SINGLE; REMOTE REMOTE SINGLE;
        SINGLE SINGLE PAIR;   PAIR   SINGLE PAIR;   REMOTE SINGLE PAIR;
        SINGLE PAIR   PAIR;   PAIR   PAIR   PAIR;   REMOTE PAIR   PAIR;
        SINGLE REMOTE PAIR;   PAIR   REMOTE PAIR;   REMOTE REMOTE PAIR;
        SINGLE SINGLE REMOTE; PAIR   SINGLE REMOTE; REMOTE SINGLE REMOTE;
        SINGLE PAIR   REMOTE; PAIR   PAIR   REMOTE; REMOTE PAIR   REMOTE;
        SINGLE REMOTE REMOTE; PAIR   REMOTE REMOTE; REMOTE REMOTE REMOTE;
    }
}

/// One row, with the number of copies in each dimension known to the compiler.
#[inline]
fn sum_row<P: Points + ?Sized, V: Values, const X: u8, const Y: u8, const Z: u8>(
    u: &mut P,
    slots: &[Option<V>; 8],
    rows: &[Row; 8],
    count: usize,
) {
    let how = [X, Y, Z];
    let copies = how.map(|h| if h == SINGLE { 1 } else { 2 });
    for k in 0..count {
        // The copy `c` of this point: 0 or 1 in each dimension.
        let index = |set: usize, c: [usize; 3]| {
            let row = &rows[set];
            let mut at = row.start + k * row.step;
            for d in 0..3 {
                if how[d] == PAIR && c[d] == 1 {
                    at += row.pair[d];
                }
            }
            at
        };
        let value = |u: &P, c: [usize; 3]| {
            let set: usize = (0..3).filter(|&d| how[d] == REMOTE && c[d] == 1).map(|d| 1 << d).sum();
            match &slots[set] {
                Some(slot) => slot.get(index(set, c)),
                None => u.get(index(0, c)),
            }
        };
        let along_x = |u: &P, y: usize, z: usize| {
            let first = value(u, [0, y, z]);
            if copies[0] == 2 { first + value(u, [1, y, z]) } else { first }
        };
        let along_y = |u: &P, z: usize| {
            let first = along_x(u, 0, z);
            if copies[1] == 2 { first + along_x(u, 1, z) } else { first }
        };
        let first = along_y(u, 0);
        let sum = if copies[2] == 2 { first + along_y(u, 1) } else { first };

        let local = how.map(|h| if h == PAIR { 2 } else { 1 });
        for z in 0..local[2] {
            for y in 0..local[1] {
                for x in 0..local[0] {
                    u.set(index(0, [x, y, z]), sum);
                }
            }
        }
    }
}
