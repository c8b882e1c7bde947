//! What all variants work with: the neighbours, the kernels, and a count of what is enqueued.

use super::SetupOn;
use crate::faces::device::{FacesDevice, Inbox, Outbox};
use crate::faces::layout::{Dim, Direction, Geometry};
use std::cell::Cell;
use tidegate_core::window::Window;
use tidegate_core::{Layout, Result, Stream};

/// One rank's neighbours and kernels.
pub(super) struct Kit<'a, D: FacesDevice> {
    pub(super) setup: &'a SetupOn<'a, D>,
    pub(super) kernels: &'a D::Kernels,
    pub(super) geometry: &'a Geometry,
    /// The neighbours, in the order of their slots (the same inbound and outbound).
    pub(super) neighbours: Vec<Neighbour<D>>,
    launches: Cell<u64>,
}

/// One neighbour.
pub(super) struct Neighbour<D: FacesDevice> {
    pub(super) direction: Direction,
    pub(super) rank: usize,
    /// Where the message to it lies in the block.
    pub(super) layout: Layout<D>,
}

impl<'a, D: FacesDevice> Kit<'a, D> {
    pub(super) fn new(setup: &'a SetupOn<'a, D>, kernels: &'a D::Kernels) -> Result<Self> {
        let geometry = setup.verifier.geometry();
        let neighbours = geometry
            .neighbours()
            .map(|(direction, rank)| {
                Ok(Neighbour {
                    direction,
                    rank,
                    layout: layout(geometry, direction)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Kit {
            setup,
            kernels,
            geometry,
            neighbours,
            launches: Cell::new(0),
        })
    }

    /// Notes that so many kernels, batches or graphs were enqueued.
    pub(super) fn launched(&self, count: u64) {
        self.launches.set(self.launches.get() + count);
    }

    /// How many kernels, batches and graphs were enqueued.
    pub(super) fn launches(&self) -> u64 {
        self.launches.get()
    }

    /// Creates the window; collective.
    pub(super) fn window<'s>(
        &self,
        stream: &Stream<'s, D>,
    ) -> Result<(Inbox<'s, D>, Outbox<'s, D>)> {
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
}

/// A message as the library wants it.
fn layout<D: FacesDevice>(geometry: &Geometry, direction: Direction) -> Result<Layout<D>> {
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
