//! The block: one region, or (with compute) its surface and its interior.

use super::kit::{Kit, Neighbour};
use crate::faces::device::{FacesDevice, FacesKernels, Inbox, Part, Values, Which};
use crate::faces::timeline::Lane;
use tidegate_core::window::Source;
use tidegate_core::{IndexSet, Region, Result, Stream};

/// Either the first, or the other two: surface and interior.
pub(super) type Block<'s, D> = (
    Option<Values<'s, D>>,
    Option<Part<'s, D>>,
    Option<Part<'s, D>>,
);

/// Allocates the block.
pub(super) fn new<'s, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
) -> Result<Block<'s, D>> {
    let u = Region::zeroed(kit.setup.world, kit.geometry.len())?.on(stream)?;
    if !kit.setup.params.compute {
        return Ok((Some(u), None, None));
    }
    let [surface, interior] = u.partition([
        IndexSet::from_ranges(kit.geometry.surface_ranges())?,
        IndexSet::from_ranges(kit.geometry.interior_ranges())?,
    ])?;
    Ok((None, Some(surface), Some(interior)))
}

/// The parts that there are, and which they are.
fn parts<'b, 's, D: FacesDevice>(
    block: &'b Block<'s, D>,
) -> impl Iterator<Item = (Which, &'b Part<'s, D>)> {
    let surface = block.1.iter().map(|part| (Which::Surface, part));
    surface.chain(block.2.iter().map(|part| (Which::Interior, part)))
}

/// Enqueues the kernel that sets the block to its initial values.
pub(super) fn initialise<'s, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    block: &mut Block<'s, D>,
) -> Result<()> {
    if let (Some(u), ..) = block {
        return kit.kernels.initialise(stream, u);
    }
    let surface = block.1.iter_mut().map(|part| (Which::Surface, part));
    for (which, part) in surface.chain(block.2.iter_mut().map(|part| (Which::Interior, part))) {
        kit.kernels.initialise_part(stream, which, part)?;
    }
    Ok(())
}

/// Gives the block to `check`, on the host.
///
/// The parts are copied: putting them together would make them other regions, and a recording
/// knows the ones that it was made with.
pub(super) fn inspect<'s, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    block: Block<'s, D>,
    check: &mut dyn FnMut(&[f64]),
) -> Result<Block<'s, D>> {
    if let (Some(u), ..) = block {
        let u = u.into_host(stream)?;
        D::look(&u, check)?;
        return Ok((Some(u.on(stream)?), None, None));
    }
    let len = block.1.as_ref().map_or(0, Part::whole_len);
    let mut copy = Region::zeroed(kit.setup.world, len)?.on(stream)?;
    for (which, part) in parts(&block) {
        kit.kernels.copy_part(stream, which, part, &mut copy)?;
    }
    D::look(&copy.into_host(stream)?, check)?;
    Ok(block)
}

/// Enqueues the pack kernel.
pub(super) fn pack<'s, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    block: &Block<'s, D>,
    packed: &mut Values<'s, D>,
) -> Result<()> {
    kit.launched(1);
    let begun = kit.begin(|| D::moment(stream, packed))?;
    match block {
        (Some(u), ..) => kit.kernels.pack(stream, u, packed),
        (None, Some(surface), _) => kit.kernels.pack_part(stream, surface, packed),
        (None, None, _) => unreachable!("a block has a surface"),
    }?;
    kit.end(begun, Lane::Stream, "pack", || D::moment(stream, packed))
}

/// Enqueues the unpack kernel.
pub(super) fn unpack<'s, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    block: &mut Block<'s, D>,
    inbox: &Inbox<'s, D>,
) -> Result<()> {
    kit.launched(1);
    let begun = kit.begin(|| moment(stream, block))?;
    match block {
        (Some(u), ..) => kit.kernels.unpack(stream, inbox, u),
        (None, Some(surface), _) => kit.kernels.unpack_part(stream, inbox, surface),
        (None, None, _) => unreachable!("a block has a surface"),
    }?;
    kit.end(begun, Lane::Stream, "unpack", || moment(stream, block))
}

/// A moment of the stream that the surface is on.
fn moment<'s, D: FacesDevice>(stream: &Stream<'s, D>, block: &Block<'s, D>) -> Result<D::Moment> {
    match block {
        (Some(u), ..) => D::moment(stream, u),
        (None, Some(surface), _) => D::moment_at_part(stream, surface),
        (None, None, _) => unreachable!("a block has a surface"),
    }
}

/// The message to a neighbour as the source of a put.
pub(super) fn source<'b, 's, D: FacesDevice>(
    block: &'b Block<'s, D>,
    to: &'b Neighbour<D>,
) -> Result<Source<'b, 's, f64, D>> {
    match block {
        (Some(u), ..) => u.with(&to.layout),
        (None, Some(surface), _) => surface.with(&to.layout),
        (None, None, _) => unreachable!("a block has a surface"),
    }
}

/// Hands the interior, if it is apart, to the second stream, and enqueues the compute kernel there.
pub(super) fn fork<'s, 't, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    side: Option<&Stream<'t, D>>,
    block: &mut Block<'s, D>,
) -> Result<Option<Part<'t, D>>> {
    let (Some(interior), Some(side)) = (block.2.take(), side) else {
        return Ok(None);
    };
    let mut interior = stream.hand_off(interior, side)?;
    kit.launched(1);
    let begun = kit.begin(|| D::moment_at_part(side, &interior))?;
    kit.kernels.compute(side, &mut interior)?;
    kit.end(begun, Lane::Compute, "compute", || {
        D::moment_at_part(side, &interior)
    })?;
    Ok(Some(interior))
}

/// Hands the interior back.
pub(super) fn join<'s, 't, D: FacesDevice>(
    stream: &Stream<'s, D>,
    side: Option<&Stream<'t, D>>,
    interior: Option<Part<'t, D>>,
    block: &mut Block<'s, D>,
) -> Result<()> {
    if let (Some(interior), Some(side)) = (interior, side) {
        block.2 = Some(side.hand_off(interior, stream)?);
    }
    Ok(())
}
