//! The block: one region, or (with compute) its surface and its interior.

use super::shape::Shape;
use super::{Inbox, Part, Region, Stream, World};
use crate::faces::kernels::{self, Points, Values, initial_value};
use crate::faces::layout::Geometry;
use std::sync::Arc;
use tidegate_core::window::Source;
use tidegate_core::{Cells, CellsMut, IndexSet, Result};
use tidegate_host::Host;

/// Either the first, or the other two: surface and interior.
pub(super) type Block<'s> = (Option<Region<'s>>, Option<Part<'s>>, Option<Part<'s>>);

impl Values for Cells<'_, f64> {
    #[inline(always)]
    fn get(&self, index: usize) -> f64 {
        Cells::get(self, index)
    }
}

impl Values for CellsMut<'_, f64> {
    #[inline(always)]
    fn get(&self, index: usize) -> f64 {
        CellsMut::get(self, index)
    }
}

impl Points for CellsMut<'_, f64> {
    #[inline(always)]
    fn set(&mut self, index: usize, value: f64) {
        CellsMut::set(self, index, value);
    }
}

/// Allocates the block.
pub(super) fn new<'s>(
    world: &World,
    stream: &Stream<'s>,
    shape: &Shape,
    compute: bool,
) -> Result<Block<'s>> {
    let u = tidegate_core::Region::zeroed(world, shape.geometry.len())?.on(stream)?;
    if !compute {
        return Ok((Some(u), None, None));
    }
    let [surface, interior] = u.partition([
        IndexSet::from_ranges(shape.geometry.surface_ranges())?,
        IndexSet::from_ranges(shape.geometry.interior_ranges())?,
    ])?;
    Ok((None, Some(surface), Some(interior)))
}

/// Enqueues the kernel that sets the block to its initial values.
pub(super) fn initialise<'s>(
    stream: &Stream<'s>,
    shape: &Arc<Shape>,
    block: &mut Block<'s>,
) -> Result<()> {
    match block {
        (Some(u), ..) => {
            let shape = shape.clone();
            stream.launch(
                move |u: &mut [f64]| kernels::init(&shape.geometry, shape.init, u),
                u,
            )
        }
        (None, surface, interior) => {
            for part in surface.iter_mut().chain(interior) {
                let (shape, set) = (shape.clone(), part.set().clone());
                let kernel = move |mut u: CellsMut<'_, f64>| {
                    let offset = kernels::element_offset(&shape.geometry, shape.init);
                    for index in set.ranges().iter().cloned().flatten() {
                        let (i, j) = shape.geometry.coordinates(index);
                        let j = [0, 1, 2].map(|d| j[d] + offset[d]);
                        u.set(index, initial_value(i, j));
                    }
                };
                stream.launch(kernel, part)?;
            }
            Ok(())
        }
    }
}

/// Gives the block to `check`, on the host.
///
/// The parts are copied: putting them together would make them other regions, and a recording
/// knows the ones that it was made with.
pub(super) fn inspect<'s>(
    world: &World,
    stream: &Stream<'s>,
    block: Block<'s>,
    check: &mut dyn FnMut(&[f64]),
) -> Result<Block<'s>> {
    if let (Some(u), ..) = block {
        let u = u.into_host(stream)?;
        check(&u);
        return Ok((Some(u.on(stream)?), None, None));
    }
    let len = block.1.as_ref().map_or(0, Part::whole_len);
    let mut copy = tidegate_core::Region::<f64, _>::zeroed(world, len)?.on(stream)?;
    for part in block.1.iter().chain(&block.2) {
        let set = part.set().clone();
        let kernel = move |u: Cells<'_, f64>, copy: &mut [f64]| {
            for index in set.ranges().iter().cloned().flatten() {
                copy[index] = u.get(index);
            }
        };
        stream.launch(kernel, (part, &mut copy))?;
    }
    check(&copy.into_host(stream)?);
    Ok(block)
}

/// Enqueues the pack kernel.
pub(super) fn pack<'s>(
    stream: &Stream<'s>,
    shape: &Arc<Shape>,
    block: &Block<'s>,
    packed: &mut Region<'s>,
) -> Result<()> {
    let shape = shape.clone();
    match block {
        (Some(u), ..) => {
            let kernel = move |u: &[f64], out: &mut [f64]| kernels::pack(&shape.geometry, u, out);
            stream.launch(kernel, (u, packed))
        }
        (None, Some(surface), _) => {
            let kernel =
                move |u: Cells<'_, f64>, out: &mut [f64]| kernels::pack(&shape.geometry, &u, out);
            stream.launch(kernel, (surface, packed))
        }
        (None, None, _) => unreachable!("a block has a surface"),
    }
}

/// Enqueues the unpack kernel.
pub(super) fn unpack<'s>(
    stream: &Stream<'s>,
    shape: &Arc<Shape>,
    block: &mut Block<'s>,
    inbox: &Inbox<'s>,
) -> Result<()> {
    let shape = shape.clone();
    match block {
        (Some(u), ..) => {
            let kernel = move |received: tidegate_core::window::Slots<'_, f64>, u: &mut [f64]| {
                shape.unpack(received, u);
            };
            stream.launch(kernel, (inbox.view(), u))
        }
        (None, Some(surface), _) => {
            let kernel = move |received: tidegate_core::window::Slots<'_, f64>,
                               mut u: CellsMut<'_, f64>| {
                shape.unpack(received, &mut u);
            };
            stream.launch(kernel, (inbox.view(), surface))
        }
        (None, None, _) => unreachable!("a block has a surface"),
    }
}

/// The message to a neighbour as the source of a put.
pub(super) fn source<'b, 's>(
    block: &'b Block<'s>,
    layout: &'b super::Layout,
) -> Result<Source<'b, 's, f64, Host>> {
    match block {
        (Some(u), ..) => u.with(layout),
        (None, Some(surface), _) => surface.with(layout),
        (None, None, _) => unreachable!("a block has a surface"),
    }
}

/// Hands the interior, if it is apart, to the second stream, and enqueues the compute kernel there.
pub(super) fn fork<'s, 't>(
    stream: &Stream<'s>,
    side: Option<&Stream<'t>>,
    shape: &Arc<Shape>,
    block: &mut Block<'s>,
) -> Result<Option<Part<'t>>> {
    let (Some(interior), Some(side)) = (block.2.take(), side) else {
        return Ok(None);
    };
    let mut interior = stream.hand_off(interior, side)?;
    let shape = shape.clone();
    let kernel = move |mut u: CellsMut<'_, f64>| compute(&shape.geometry, &mut u);
    side.launch(kernel, &mut interior)?;
    Ok(Some(interior))
}

fn compute(geometry: &Geometry, u: &mut CellsMut<'_, f64>) {
    kernels::compute(geometry, u);
}

/// Hands the interior back.
pub(super) fn join<'s, 't>(
    stream: &Stream<'s>,
    side: Option<&Stream<'t>>,
    interior: Option<Part<'t>>,
    block: &mut Block<'s>,
) -> Result<()> {
    if let (Some(interior), Some(side)) = (interior, side) {
        block.2 = Some(side.hand_off(interior, stream)?);
    }
    Ok(())
}
