//! Sums of all copies of a point: what `unpack` and `compute` have in common.
//!
//! A [`Piece`] of the block is walked row by row; indices are affine along a row, so nothing is
//! looked up in tables that grow with the block. The points of a row have the same number of
//! copies: two in each dimension in which there is a pair of elements or a neighbour, so 2, 4 or 8.
//! Numbered with the first such dimension fastest, copies are summed as a perfect binary tree over
//! neighbouring numbers; that is the order of summation that the kernels promise.

use super::{Points, Slots, Values};
use crate::faces::layout::{How, Piece};

/// One copy of each point of a row.
#[derive(Clone, Copy, Default)]
struct Copies {
    /// Which source it is in: 0 is the block.
    set: usize,
    /// The first point's index in there.
    start: usize,
    /// From a point to the next.
    step: usize,
}

impl Copies {
    #[inline]
    fn at(&self, k: usize) -> usize {
        self.start + k * self.step
    }
}

/// Replaces each point of the piece by the sum of all its copies. Points with a single copy are not
/// touched.
pub(super) fn sum_copies<P: Points + ?Sized, S: Slots + ?Sized>(
    piece: &Piece,
    u: &mut P,
    slots: &S,
) {
    // By set of remote dimensions, as `Line::at` is.
    let mut received: [Option<S::Slot<'_>>; 8] = Default::default();
    let mut pair = [[0; 3]; 8];
    let mut step = [[0; 2]; 8];
    let [inner, middle, outer] = piece.order;
    for source in &piece.sources {
        received[source.set] = source.direction.map(|d| slots.slot(d));
        pair[source.set] = source.pair;
        step[source.set] = [source.strides.i[inner], source.strides.j[inner]];
    }
    let remote = piece.remote;
    let bit = |d: usize, how: How| usize::from(how == How::Pair) << d;
    for far in &piece.around[1] {
        for near in &piece.around[0] {
            let around = bit(outer, far.how) | bit(middle, near.how);
            for line in piece.rows.iter().rev() {
                let pairs = around | bit(inner, line.how);
                let start = |set: usize| far.at[set] + near.at[set] + line.at[set];
                let step = |set: usize| step[set][usize::from(line.by_element)];
                match (remote, pairs) {
                    // One copy: nothing to do; and rows of pairs come last, so there are no others.
                    (0, 0) => break,
                    // Nearly all points of a face.
                    (1 | 2 | 4, 0) => {
                        let own = Copies {
                            set: 0,
                            start: start(0),
                            step: step(0),
                        };
                        let other = Copies {
                            set: remote,
                            start: start(remote),
                            step: step(remote),
                        };
                        if let Some(slot) = &received[remote] {
                            add_received(u, slot, own, other, line.count);
                        }
                    }
                    // Nearly all points between two elements.
                    (0, 1 | 2 | 4) => {
                        let low = Copies {
                            set: 0,
                            start: start(0),
                            step: step(0),
                        };
                        let high = Copies {
                            start: low.start + pair[0][pairs.trailing_zeros() as usize],
                            ..low
                        };
                        add_pairs(u, low, high, line.count);
                    }
                    // Nearly all other points of a face: those between two elements.
                    (1 | 2 | 4, 1 | 2 | 4) => {
                        let low = |set: usize| Copies {
                            set,
                            start: start(set),
                            step: step(set),
                        };
                        let high = |set: usize| Copies {
                            start: start(set) + pair[set][pairs.trailing_zeros() as usize],
                            ..low(set)
                        };
                        let own = [low(0), high(0)];
                        let other = [low(remote), high(remote)];
                        if let Some(slot) = &received[remote] {
                            add_received_pairs(u, slot, own, other, line.count, remote < pairs);
                        }
                    }
                    _ => {
                        let mut copies = [Copies::default(); 8];
                        let mut len = 0;
                        for c in 0..8 {
                            if c & !(remote | pairs) == 0 {
                                let set = c & remote;
                                let up = |d: usize| {
                                    if c & pairs & (1 << d) != 0 {
                                        pair[set][d]
                                    } else {
                                        0
                                    }
                                };
                                copies[len] = Copies {
                                    set,
                                    start: start(set) + up(0) + up(1) + up(2),
                                    step: step(set),
                                };
                                len += 1;
                            }
                        }
                        if let ([first @ .., _, _, _, _], 4) = (&copies, len) {
                            add_all::<P, _, 4>(u, &received, first, line.count);
                        } else {
                            add_all::<P, _, 8>(u, &received, &copies, line.count);
                        }
                    }
                }
            }
        }
    }
}

/// Adds a row of received values to a row of the block.
#[inline]
fn add_received<P: Points + ?Sized, V: Values>(
    u: &mut P,
    slot: &V,
    own: Copies,
    other: Copies,
    count: usize,
) {
    if let (Some(u), Some(slot), 1) = (u.as_mut_slice(), slot.as_slice(), other.step) {
        let slot = &slot[other.start..other.start + count];
        let row = &mut u[own.start..=own.at(count - 1)];
        if own.step == 1 {
            row.iter_mut().zip(slot).for_each(|(u, r)| *u += r);
        } else {
            row.iter_mut()
                .step_by(own.step)
                .zip(slot)
                .for_each(|(u, r)| *u += r);
        }
    } else {
        for k in 0..count {
            u.set(own.at(k), u.get(own.at(k)) + slot.get(other.at(k)));
        }
    }
}

/// Adds two rows of the block, and writes the sum to both.
#[inline]
fn add_pairs<P: Points + ?Sized>(u: &mut P, low: Copies, high: Copies, count: usize) {
    match u.as_mut_slice() {
        // Rows that do not cross: two slices.
        Some(u) if low.step == 1 && low.start + count <= high.start => {
            let (below, above) = u.split_at_mut(high.start);
            let below = &mut below[low.start..low.start + count];
            for (a, b) in below.iter_mut().zip(&mut above[..count]) {
                let sum = *a + *b;
                (*a, *b) = (sum, sum);
            }
        }
        _ => {
            for k in 0..count {
                let sum = u.get(low.at(k)) + u.get(high.at(k));
                u.set(low.at(k), sum);
                u.set(high.at(k), sum);
            }
        }
    }
}

/// Sums two rows of the block and the two that were received for them, and writes the sum to both.
/// The pairs that are summed first are a row and what was received for it if `received_first`, else
/// the two rows and the two that were received.
#[inline]
fn add_received_pairs<P: Points + ?Sized, V: Values>(
    u: &mut P,
    slot: &V,
    own: [Copies; 2],
    other: [Copies; 2],
    count: usize,
    received_first: bool,
) {
    let sum = |own: [f64; 2], other: [f64; 2]| {
        if received_first {
            (own[0] + other[0]) + (own[1] + other[1])
        } else {
            (own[0] + own[1]) + (other[0] + other[1])
        }
    };
    match (u.as_mut_slice(), slot.as_slice()) {
        (Some(u), Some(slot)) => {
            for k in 0..count {
                let [low, high] = own.map(|row| row.at(k));
                let sum = sum([u[low], u[high]], other.map(|row| slot[row.at(k)]));
                (u[low], u[high]) = (sum, sum);
            }
        }
        _ => {
            for k in 0..count {
                let [low, high] = own.map(|row| row.at(k));
                let sum = sum(
                    [u.get(low), u.get(high)],
                    other.map(|row| slot.get(row.at(k))),
                );
                u.set(low, sum);
                u.set(high, sum);
            }
        }
    }
}

/// Sums any four or eight rows, of which the first is in the block, and writes the sum to all that
/// are.
#[inline]
fn add_all<P: Points + ?Sized, V: Values, const N: usize>(
    u: &mut P,
    received: &[Option<V>; 8],
    copies: &[Copies],
    count: usize,
) {
    for k in 0..count {
        let mut value = [0.0; N];
        for (value, copy) in value.iter_mut().zip(copies) {
            *value = match &received[copy.set] {
                Some(slot) => slot.get(copy.at(k)),
                None => u.get(copy.at(k)),
            };
        }
        let mut width = N;
        while width > 1 {
            width /= 2;
            for t in 0..width {
                value[t] = value[2 * t] + value[2 * t + 1];
            }
        }
        for copy in copies.iter().filter(|c| c.set == 0) {
            u.set(copy.at(k), value[0]);
        }
    }
}
