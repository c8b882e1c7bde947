//! What all shares of a rank have in common: the neighbours, their slots and layouts, the kernels.

use super::{Inbox, Layout, Outbox, Setup, Stream};
use crate::faces::kernels::{self, Points, SlotsBy};
use crate::faces::layout::{Dim, Direction, Geometry};
use crate::faces::params::Init;
use tidegate_core::Result;
use tidegate_core::window::{Slots, Window};

/// The neighbours, and what the kernels need to know. Shared by the closures that are kernels.
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    pub(super) init: Init,
    /// The neighbours, in the order of their slots (the same inbound and outbound).
    pub(super) neighbours: Vec<Neighbour>,
    /// The number of the slot of each direction that has a neighbour.
    slot_of: [usize; Direction::COUNT],
    omit: Option<Direction>,
}

/// One neighbour.
pub(super) struct Neighbour {
    pub(super) direction: Direction,
    pub(super) rank: usize,
    /// Where the message to it lies in the block.
    pub(super) layout: Layout,
}

impl Shape {
    pub(super) fn new(setup: &Setup<'_>) -> Result<Self> {
        let geometry = setup.verifier.geometry().clone();
        let neighbours = geometry
            .neighbours()
            .map(|(direction, rank)| {
                Ok(Neighbour {
                    direction,
                    rank,
                    layout: layout(&geometry, direction)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut slot_of = [usize::MAX; Direction::COUNT];
        for (slot, neighbour) in neighbours.iter().enumerate() {
            slot_of[neighbour.direction.index()] = slot;
        }
        Ok(Shape {
            init: setup.params.init,
            omit: setup.omit,
            geometry,
            neighbours,
            slot_of,
        })
    }

    /// Creates the window; collective.
    pub(super) fn window<'s>(&self, stream: &Stream<'s>) -> Result<(Inbox<'s>, Outbox<'s>)> {
        let mut window = Window::by_slot("faces");
        for neighbour in &self.neighbours {
            let (rank, direction) = (neighbour.rank, neighbour.direction);
            // What comes from there was sent in the opposite direction.
            let key = direction.opposite().index() as u64;
            window = window
                .slot_from(rank, key, self.geometry.message_len(direction))
                .slot_to(rank, direction.index() as u64);
        }
        window.open(stream)
    }

    /// The unpack kernel over any view of the block.
    pub(super) fn unpack<P: Points + ?Sized>(&self, received: Slots<'_, f64>, u: &mut P) {
        let slots = SlotsBy(|d: Direction| received.slot(self.slot_of[d.index()]));
        match self.omit {
            None => kernels::unpack(&self.geometry, u, &slots),
            Some(omit) => Direction::all()
                .filter(|d| *d != omit)
                .for_each(|d| kernels::unpack_piece(&self.geometry, u, &slots, d)),
        }
    }
}

/// A message as the library wants it.
fn layout(geometry: &Geometry, direction: Direction) -> Result<Layout> {
    let invalid = |_| tidegate_core::Error::Invalid("the block is too large for a layout".into());
    let message = geometry.strided(direction);
    let mut loops = message
        .dims()
        .iter()
        .map(|Dim { count, stride }| {
            Ok((
                u32::try_from(*count).map_err(invalid)?,
                i32::try_from(*stride).map_err(invalid)?,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    if loops.is_empty() {
        // A corner.
        loops.push((1, 1));
    }
    Layout::strided(message.base, &loops)
}
