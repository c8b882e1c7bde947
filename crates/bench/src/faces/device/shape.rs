//! What all kernels of a rank have in common.

use crate::faces::kernels::{self, Points, SlotsBy};
use crate::faces::layout::{Direction, Geometry};
use crate::faces::params::Init;
use tidegate_core::window::Slots;

/// What the kernels need to know: the block, its initial values, and which slot is whose.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The block and its messages.
    pub geometry: Geometry,
    /// Its initial values.
    pub init: Init,
    /// Left out of the unpack kernel: for tests that want a wrong result.
    pub omit: Option<Direction>,
    /// The number of the slot of each direction that has a neighbour.
    slot_of: [usize; Direction::COUNT],
}

impl Shape {
    /// The shape of a rank's block.
    pub fn new(geometry: Geometry, init: Init, omit: Option<Direction>) -> Shape {
        let mut slot_of = [usize::MAX; Direction::COUNT];
        for (slot, (direction, _)) in geometry.neighbours().enumerate() {
            slot_of[direction.index()] = slot;
        }
        Shape {
            geometry,
            init,
            omit,
            slot_of,
        }
    }

    /// The unpack kernel on the CPU, over any view of the block.
    pub(super) fn unpack<P: Points + ?Sized>(&self, received: Slots<'_, f64>, u: &mut P) {
        self.unpack_from(
            SlotsBy(|d: Direction| received.slot(self.slot_of[d.index()])),
            u,
        );
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
