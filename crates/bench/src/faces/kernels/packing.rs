//! From the surface of the block to messages.

use super::Values;
use crate::faces::layout::{Dim, Direction, Geometry};

/// Copies the raw surface of the block into the slots ([`Geometry::slot`]) of all directions that
/// have a neighbour. The rest of the buffer is left alone.
///
/// # Panics
///
/// When `u` has fewer than [`Geometry::len`] values or `buffer` fewer than
/// [`Geometry::packed_len`].
pub fn pack<V: Values + ?Sized>(geometry: &Geometry, u: &V, buffer: &mut [f64]) {
    for (d, _) in geometry.neighbours() {
        pack_direction(geometry, u, d, &mut buffer[geometry.slot(d)]);
    }
}

/// Copies one message into `out`, which has [`Geometry::message_len`] values.
///
/// # Panics
///
/// When `u` or `out` is too short.
pub fn pack_direction<V: Values + ?Sized>(
    geometry: &Geometry,
    u: &V,
    d: Direction,
    out: &mut [f64],
) {
    let message = geometry.strided(d);
    let Dim { count, stride } = message.row();
    let mut rows = out[..message.len()].chunks_exact_mut(count);
    message.for_each_row(|start| {
        let Some(out) = rows.next() else { return };
        match u.as_slice() {
            Some(u) if stride == 1 => out.copy_from_slice(&u[start..start + count]),
            // One check of the bounds for the whole row, which is cut into steps: they divide the block,
            // so the last one is whole.
            Some(u) => {
                let place = start % stride;
                let row = &u[start - place..][..count * stride];
                for (out, values) in out.iter_mut().zip(row.chunks_exact(stride)) {
                    *out = values[place];
                }
            }
            None => {
                for (k, out) in out.iter_mut().enumerate() {
                    *out = u.get(start + k * stride);
                }
            }
        }
    });
}
