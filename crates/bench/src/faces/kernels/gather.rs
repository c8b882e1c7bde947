//! Sums of all copies of a point, for `unpack` and `compute`.
//!
//! The points of a small surface are listed one by one ([`sum_list`]). Otherwise a kernel is one flat
//! loop over the [`Patch`]es that the geometry has prepared: nothing in that list is without work, and
//! all points of a patch have the same number of copies (2, 4 or 8), in the same places relative to
//! each other. So there is one loop nest, compiled once for each kind:
//! how many copies there are, and which of them neighbours have sent. Copies are numbered with
//! the first dimension in which there are two fastest, and summed as a perfect binary tree over
//! neighbouring numbers; that is the order of summation that the kernels promise.
//!
//! The two inner loops of a patch are a *plane*. Over slices, bounds are checked by the row or by the
//! plane where they can be: nearly all points have two copies; where these are contiguous a row is two
//! slices, and where they are strided it is cut into steps, with one copy in each.

use super::kinds::{Kind, Received, by_kind, slices, tree};
use super::listed::sum_list;
use super::{Points, Slots, Values};
use crate::faces::layout::{Direction, Geometry, Group, Loop, Patch};
use std::cell::Cell;

/// Replaces each point of the surface, or of one piece of it, by the sum of all its copies. Points
/// with a single copy are not touched.
pub(super) fn sum_surface<P: Points + ?Sized, S: Slots + ?Sized>(
    geometry: &Geometry,
    u: &mut P,
    slots: &S,
    piece: Option<Direction>,
) {
    let mut received: Received<S::Slot<'_>> = [const { None }; Direction::COUNT];
    for (d, _) in geometry.neighbours() {
        received[d.index()] = Some(slots.slot(d));
    }
    let pieces = geometry.surface_patches();
    match (piece, geometry.surface_lists()) {
        (Some(piece), _) => sum_group(u, &received, &pieces[piece.index()]),
        (None, Some(lists)) => lists.iter().for_each(|list| sum_list(u, &received, list)),
        (None, None) => pieces
            .iter()
            .for_each(|piece| sum_group(u, &received, piece)),
    }
}

/// The same for the interior.
pub(super) fn sum_interior<P: Points + ?Sized>(geometry: &Geometry, u: &mut P) {
    sum_group(u, &NOTHING, geometry.interior_patches());
}

/// Patches that take turns row by row, so that all that is done to a row is done while it is in the
/// cache.
#[inline(always)]
fn sum_group<P: Points + ?Sized, V: Values>(u: &mut P, received: &Received<V>, group: &Group) {
    let [inner, outer] = group.rows;
    for z in 0..outer {
        for y in 0..inner {
            for patch in &group.patches {
                if y < patch.rows[0].count && z < patch.rows[1].count {
                    sum_patch(u, received, patch, [y, z]);
                }
            }
        }
    }
}

/// The slots of points that no neighbour has sent.
static NOTHING: Received<&[f64]> = [None; Direction::COUNT];

/// One row of a patch.
struct Row<'a, P: ?Sized, V> {
    u: &'a mut P,
    received: &'a Received<V>,
    patch: &'a Patch,
    row: [u32; 2],
}

impl<P: Points + ?Sized, V: Values> Kind for Row<'_, P, V> {
    #[inline(always)]
    fn sum<const N: usize, const REMOTE: usize>(self) {
        sum::<P, V, N, REMOTE>(self.u, self.received, self.patch, self.row);
    }
}

/// One row of a patch.
#[inline]
fn sum_patch<P: Points + ?Sized, V: Values>(
    u: &mut P,
    received: &Received<V>,
    patch: &Patch,
    row: [u32; 2],
) {
    by_kind(
        patch.copies,
        patch.remote,
        Row {
            u,
            received,
            patch,
            row,
        },
    );
}

/// One patch: points of `N` copies, of which those with a bit of `REMOTE` in their number were
/// received.
#[inline(never)]
fn sum<P: Points + ?Sized, V: Values, const N: usize, const REMOTE: usize>(
    u: &mut P,
    received: &Received<V>,
    patch: &Patch,
    row: [u32; 2],
) {
    let slices = slices::<V, N, REMOTE>(received, &patch.from);
    if let (Some(slices), Some(u)) = (slices, u.as_mut_slice()) {
        // All points of a patch have the same place within a step.
        let place = [0, 1].map(|copy| (patch.start[copy] % patch.loops[0].stride[0]) as usize);
        for_each_plane::<N, REMOTE>(patch, row, |at| {
            sum_plane_of_slices::<N, REMOTE>(u, &slices, at, place, patch);
        });
    } else {
        let messages = std::array::from_fn(|copy| match copy & REMOTE {
            0 => None,
            _ => received[usize::from(patch.from[copy])].as_ref(),
        });
        for_each_plane::<N, REMOTE>(patch, row, |at| {
            sum_plane::<P, V, N, REMOTE>(u, &messages, at, patch);
        });
    }
}

/// Where the copies of the first point of every plane are: the two outer loops of a patch, whose
/// inner two are a plane.
#[inline(always)]
fn for_each_plane<const N: usize, const REMOTE: usize>(
    patch: &Patch,
    row: [u32; 2],
    mut visit: impl FnMut([usize; N]),
) {
    let [_, _, inner, outer] = &patch.loops;
    let mut far = [0, 1, 2, 3].map(|source| {
        let begin = |k: usize| row[k] as usize * patch.rows[k].stride[source] as usize;
        begin(0) + begin(1)
    });
    for _ in 0..outer.count {
        let mut near = far;
        for _ in 0..inner.count {
            visit(std::array::from_fn(|copy| {
                patch.start[copy] as usize + near[Patch::source(copy, REMOTE)]
            }));
            advance(&mut near, inner);
        }
        advance(&mut far, outer);
    }
}

#[inline(always)]
fn advance(at: &mut [usize; 4], by: &Loop) {
    for (at, stride) in at.iter_mut().zip(by.stride) {
        *at += stride as usize;
    }
}

/// A plane of any view.
#[inline(always)]
fn sum_plane<P: Points + ?Sized, V: Values, const N: usize, const REMOTE: usize>(
    u: &mut P,
    messages: &[Option<&V>; N],
    at: [usize; N],
    patch: &Patch,
) {
    let [points, rows, ..] = &patch.loops;
    let mut row = [0; 4];
    for _ in 0..rows.count {
        let mut point = row;
        for _ in 0..points.count {
            let index = |copy: usize| at[copy] + point[Patch::source(copy, REMOTE)];
            let sum = tree::<N>(std::array::from_fn(|copy| match messages[copy] {
                Some(message) => message.get(index(copy)),
                None => u.get(index(copy)),
            }));
            for copy in (0..N).filter(|copy| copy & REMOTE == 0) {
                u.set(index(copy), sum);
            }
            advance(&mut point, points);
        }
        advance(&mut row, rows);
    }
}

/// A plane of slices.
#[inline(always)]
fn sum_plane_of_slices<const N: usize, const REMOTE: usize>(
    u: &mut [f64],
    messages: &[&[f64]; N],
    at: [usize; N],
    place: [usize; 2],
    patch: &Patch,
) {
    let [points, rows, ..] = &patch.loops;
    // Two copies, and the received values lie side by side, as nearly always.
    if N == 2 && (REMOTE == 0 || points.stride[1] == 1) {
        let (count, step) = (points.count as usize, points.stride[0] as usize);
        let mut row = [0; 4];
        for _ in 0..rows.count {
            let [own, other] = [at[0] + row[0], at[1] + row[REMOTE]];
            match (REMOTE, step) {
                (0, 1) => {
                    // A row, which lies within an element, is shorter than its copies are apart.
                    let (below, above) = u.split_at_mut(other);
                    add_pairs(&mut below[own..own + count], &mut above[..count]);
                }
                (0, _) => {
                    let u = Cell::from_mut(&mut *u).as_slice_of_cells();
                    let low = u[own - place[0]..][..count * step].chunks_exact(step);
                    let high = u[other - place[1]..][..count * step].chunks_exact(step);
                    for (low, high) in low.zip(high) {
                        let sum = low[place[0]].get() + high[place[1]].get();
                        low[place[0]].set(sum);
                        high[place[1]].set(sum);
                    }
                }
                (_, 1) => {
                    let message = &messages[1][other..other + count];
                    add_received(&mut u[own..own + count], message);
                }
                _ => {
                    let own = u[own - place[0]..][..count * step].chunks_exact_mut(step);
                    for (own, message) in own.zip(&messages[1][other..other + count]) {
                        own[place[0]] += message;
                    }
                }
            }
            advance(&mut row, rows);
        }
        return;
    }
    // All copies of the plane get a slice of their own first, so that one check of the bounds of a
    // point is one for all its copies in the block.
    let last = |by: &Loop, source: usize| (by.count as usize - 1) * by.stride[source] as usize;
    let spans = [0, 1, 2, 3].map(|source| last(points, source) + last(rows, source) + 1);
    let u = Cell::from_mut(u).as_slice_of_cells();
    let own: [&[Cell<f64>]; N] = std::array::from_fn(|copy| match copy & REMOTE {
        0 => &u[at[copy]..][..spans[0]],
        _ => &[],
    });
    let messages: [&[f64]; N] = std::array::from_fn(|copy| match copy & REMOTE {
        0 => &[],
        _ => &messages[copy][at[copy]..][..spans[Patch::source(copy, REMOTE)]],
    });
    let mut row = [0; 4];
    for _ in 0..rows.count {
        let mut point = row;
        for _ in 0..points.count {
            let sum = tree::<N>(std::array::from_fn(|copy| match copy & REMOTE {
                0 => own[copy][point[0]].get(),
                _ => messages[copy][point[Patch::source(copy, REMOTE)]],
            }));
            for copy in (0..N).filter(|copy| copy & REMOTE == 0) {
                own[copy][point[0]].set(sum);
            }
            advance(&mut point, points);
        }
        advance(&mut row, rows);
    }
}

/// Adds two rows of the block, and writes the sum to both.
#[inline(always)]
fn add_pairs(low: &mut [f64], high: &mut [f64]) {
    for (a, b) in low.iter_mut().zip(high) {
        let sum = *a + *b;
        (*a, *b) = (sum, sum);
    }
}

/// Adds a row of received values to a row of the block.
#[inline(always)]
fn add_received(row: &mut [f64], message: &[f64]) {
    for (u, r) in row.iter_mut().zip(message) {
        *u += r;
    }
}
