//! The shape that all kernels of a rank share.

use crate::faces::kernels::{self, Points};
use crate::faces::layout::{Direction, Geometry};
use crate::faces::params::Init;
use tidegate_core::window::Slots;

/// The shape of a rank's data: the block, its initial values, and the neighbour of each slot.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The block and its messages.
    pub geometry: Geometry,
    /// How the block's values are initialised.
    pub init: Init,
    /// Left out of the unpack kernel: for tests that want a wrong result.
    pub omit: Option<Direction>,
}

impl Shape {
    /// The shape of a rank's block.
    pub fn new(geometry: Geometry, init: Init, omit: Option<Direction>) -> Shape {
        Shape {
            geometry,
            init,
            omit,
        }
    }

    /// The unpack kernel on the CPU, over any view of the block.
    pub(super) fn unpack<P: Points + ?Sized>(&self, received: Slots<'_, f64>, u: &mut P) {
        // One from each neighbour, in their order.
        let mut slots = [None; Direction::COUNT];
        for ((direction, _), slot) in self.geometry.neighbours().zip(received.iter()) {
            slots[direction.index()] = Some(slot);
        }
        self.unpack_from(slots, u);
    }

    /// The same from anywhere.
    pub(in crate::faces) fn unpack_from<P: Points + ?Sized>(
        &self,
        slots: impl kernels::Slots,
        u: &mut P,
    ) {
        match self.omit {
            None => kernels::unpack(&self.geometry, u, &slots),
            Some(omit) => Direction::all()
                .filter(|d| *d != omit)
                .for_each(|d| kernels::unpack_piece(&self.geometry, u, &slots, d)),
        }
    }
}
