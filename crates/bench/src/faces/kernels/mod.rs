//! The four kernels of a share, on the CPU.
//!
//! # Model
//!
//! | kernel | reads | writes |
//! |---|---|---|
//! | [`init`] | | the block |
//! | [`pack`] | the surface | the packed buffer: the raw values of every message that has a receiver |
//! | [`compute`] | the interior | every copy of an interior point that elements share: their sum |
//! | [`unpack`] | the surface, the received messages | every copy of a surface point: the sum of all its copies |
//!
//! They are plain functions of a [`Geometry`] and a block; they allocate nothing. The block is
//! anything that implements [`Points`]: a slice, or a view through which only a part of the block
//! can be reached. `pack` and `unpack` touch only the surface, `compute` only the interior
//! ([`Geometry::is_surface`]), so `compute` may run at the same time as the others, over a view of
//! its own.
//!
//! **Order of summation.** A global point has 1, 2, 4 or 8 copies: one or two in each dimension.
//! They are summed in pairs along x, those sums along y, those along z, wherever the copies are. As
//! addition commutes, every rank gets bit for bit the same sum, without knowing which copy is
//! whose; and once all copies are equal (after the first share) sums are exact doublings, so
//! rounding errors do not grow with the number of shares. (Adding eight equal numbers one after the
//! other would round.)
//!
//! # Failures
//!
//! A block, a buffer or a slot that is too short panics: their owners check them.

mod access;
mod gather;
mod initial;
mod kinds;
mod listed;
mod packing;

pub use access::{Packed, Points, Slots, SlotsBy, Values};
pub(crate) use initial::element_offset;
pub use initial::{init, initial_value};
pub use packing::{pack, pack_direction};

use super::layout::{Direction, Geometry};

/// Sums the copies of every point strictly inside the block that elements share, and writes the sum
/// to all of them.
///
/// # Panics
///
/// When `u` has fewer than [`Geometry::len`] values.
pub fn compute<P: Points + ?Sized>(geometry: &Geometry, u: &mut P) {
    gather::sum_interior(geometry, u);
}

/// Replaces every surface point by the sum of all its copies: its own in the block, and those
/// received in `slots`.
///
/// Only slots with a neighbour are read. Slot `d` holds the message of the neighbour at `d`
/// ([`Geometry::message_len`] values).
///
/// # Panics
///
/// When `u` has fewer than [`Geometry::len`] values, or a slot is too short.
pub fn unpack<P: Points + ?Sized, S: Slots + ?Sized>(geometry: &Geometry, u: &mut P, slots: &S) {
    gather::sum_surface(geometry, u, slots, None);
}

/// One of the 26 independent pieces of [`unpack`]: the surface points that touch the neighbour at
/// `d` and no other but those at the parts of `d` (a corner `(+,+,+)` hears from 7, an edge from 3,
/// a face from 1).
///
/// # Panics
///
/// As [`unpack`].
pub fn unpack_piece<P: Points + ?Sized, S: Slots + ?Sized>(
    geometry: &Geometry,
    u: &mut P,
    slots: &S,
    d: Direction,
) {
    gather::sum_surface(geometry, u, slots, Some(d));
}
