//! From the surface of the block to messages.

use super::Values;
use crate::faces::layout::{Direction, Geometry};

/// Copies the raw surface of the block into the slots ([`Geometry::slot`]) of all directions that have a neighbour. The rest of
/// the buffer is left alone.
///
/// # Panics
///
/// When `u` has fewer than [`Geometry::len`] values or `buffer` fewer than [`Geometry::packed_len`].
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
pub fn pack_direction<V: Values + ?Sized>(geometry: &Geometry, u: &V, d: Direction, out: &mut [f64]) {
    let message = geometry.strided(d);
    let row = message.row();
    let mut at = 0;
    message.for_each_row(|start| {
        u.read(start, row.stride, &mut out[at..at + row.count]);
        at += row.count;
    });
}
