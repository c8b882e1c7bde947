//! Sums over a small surface: its points one by one, from lists that the geometry has made.
//!
//! Straight through, with one check of the bounds for each copy: of [`WIDE`] points, where they lie side
//! by side. No point is in two entries, so their order is of no matter to the sums.

use super::kinds::{Kind, Received, by_kind, slices, tree};
use super::{Points, Values};
use crate::faces::layout::{PointList, WIDE};
use std::cell::Cell;

/// Points of a small surface.
struct Listed<'a, P: ?Sized, V> {
    u: &'a mut P,
    received: &'a Received<V>,
    list: &'a PointList,
}

impl<P: Points + ?Sized, V: Values> Kind for Listed<'_, P, V> {
    #[inline(never)]
    fn sum<const N: usize, const REMOTE: usize>(self) {
        let Listed { u, received, list } = self;
        let slices = slices::<V, N, REMOTE>(received, &list.from);
        if let (Some(slices), Some(u)) = (slices, u.as_mut_slice()) {
            return sum_slices::<N, REMOTE>(u, &slices, list);
        }
        let messages: [Option<&V>; N] = std::array::from_fn(|copy| match copy & REMOTE {
            0 => None,
            _ => received[usize::from(list.from[copy])].as_ref(),
        });
        list.points::<N>().for_each(|at| {
            let sum = tree::<N>(std::array::from_fn(|copy| match messages[copy] {
                Some(message) => message.get(at[copy]),
                None => u.get(at[copy]),
            }));
            for copy in (0..N).filter(|copy| copy & REMOTE == 0) {
                u.set(at[copy], sum);
            }
        });
    }
}

fn sum_slices<const N: usize, const REMOTE: usize>(
    u: &mut [f64],
    messages: &[&[f64]; N],
    list: &PointList,
) {
    let u = Cell::from_mut(u).as_slice_of_cells();
    for at in list.wide::<N>() {
        let own: [&[Cell<f64>]; N] = std::array::from_fn(|copy| match copy & REMOTE {
            0 => &u[at[copy]..][..WIDE],
            _ => &[],
        });
        let mut rows: [[f64; WIDE]; N] = [[0.0; WIDE]; N];
        for copy in 0..N {
            rows[copy] = match copy & REMOTE {
                0 => std::array::from_fn(|k| own[copy][k].get()),
                _ => {
                    let row = &messages[copy][at[copy]..][..WIDE];
                    std::array::from_fn(|k| row[k])
                }
            };
        }
        let sums = tree_of_rows::<N>(rows);
        for copy in (0..N).filter(|copy| copy & REMOTE == 0) {
            own[copy].iter().zip(sums).for_each(|(u, sum)| u.set(sum));
        }
    }
    for at in list.single::<N>() {
        let own: [Option<&Cell<f64>>; N] =
            std::array::from_fn(|copy| (copy & REMOTE == 0).then(|| &u[at[copy]]));
        let sum = tree::<N>(std::array::from_fn(|copy| match own[copy] {
            Some(u) => u.get(),
            None => messages[copy][at[copy]],
        }));
        own.iter().flatten().for_each(|u| u.set(sum));
    }
}

/// All points of a list.
#[inline]
pub(super) fn sum_list<P: Points + ?Sized, V: Values>(
    u: &mut P,
    received: &Received<V>,
    list: &PointList,
) {
    by_kind(list.copies, list.remote, Listed { u, received, list });
}

/// [`tree`] for points that lie side by side.
#[inline(always)]
fn tree_of_rows<const N: usize>(mut rows: [[f64; WIDE]; N]) -> [f64; WIDE] {
    let mut width = N;
    while width > 1 {
        width /= 2;
        for t in 0..width {
            rows[t] = std::array::from_fn(|k| rows[2 * t][k] + rows[2 * t + 1][k]);
        }
    }
    rows[0]
}
