//! The initial values.

use super::Points;
use crate::faces::layout::Geometry;
use crate::faces::params::Init;

/// `1e4*jz + 100*jy + jx + 1e-2*iz + 1e-4*iy + 1e-6*ix` for point `i` of element `j`: every point
/// of an element, and every element, has a value of its own (up to 100 points a side and 100
/// elements a dimension).
#[inline]
pub fn initial_value(i: [usize; 3], j: [usize; 3]) -> f64 {
    let [ix, iy, iz] = i.map(|i| i as f64);
    let [jx, jy, jz] = j.map(|j| j as f64);
    1e4 * jz + 100.0 * jy + jx + 1e-2 * iz + 1e-4 * iy + 1e-6 * ix
}

/// The offset from an element's place in its block to that for [`initial_value`]: nothing, or the elements of the blocks
/// before.
pub(crate) fn element_offset(geometry: &Geometry, init: Init) -> [usize; 3] {
    match init {
        Init::Same => [0; 3],
        Init::Global => {
            let (place, m) = (geometry.place(), geometry.size().m);
            [0, 1, 2].map(|d| place[d] * m[d])
        }
    }
}

/// Sets every point of the block to its initial value.
///
/// # Panics
///
/// When `u` has fewer than [`Geometry::len`] values.
pub fn init<P: Points + ?Sized>(geometry: &Geometry, init: Init, u: &mut P) {
    let offset = element_offset(geometry, init);
    let (n, [mx, my, mz]) = (geometry.size().n, geometry.size().m);
    let mut index = 0;
    for jz in 0..mz {
        for jy in 0..my {
            for jx in 0..mx {
                let j = [jx + offset[0], jy + offset[1], jz + offset[2]];
                for iz in 0..n {
                    for iy in 0..n {
                        for ix in 0..n {
                            u.set(index, initial_value([ix, iy, iz], j));
                            index += 1;
                        }
                    }
                }
            }
        }
    }
}
