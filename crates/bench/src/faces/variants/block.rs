//! The block: one region, or (with compute) its surface and its interior.

use super::kit::{Kit, Neighbour};
use crate::faces::device::{All, FacesDevice, FacesKernels, Inbox, Message, Part, Values, Which};
use crate::faces::timeline::Lane;
use tidegate_core::window::Source;
use tidegate_core::{IndexSet, Region, Result, Stream};

/// All of it, or (with compute) its surface.
pub(super) type Block<'s, D> = (Option<Values<'s, D>>, Option<Part<'s, D>>);

/// The interior, with compute: at home on the second stream from the first share to the last, since nothing that is
/// exchanged concerns it.
pub(super) type Inside<'t, D> = Option<Part<'t, D>>;

/// Allocates the block in memory of the device.
pub(super) fn new<'s, 't, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    side: Option<&Stream<'t, D>>,
) -> Result<(Block<'s, D>, Inside<'t, D>)> {
    let u = Region::zeroed(kit.setup.world, kit.geometry.len())?.on(stream)?;
    let Some(side) = side else {
        return Ok(((Some(u), None), None));
    };
    let [surface, interior] = u.partition([
        IndexSet::from_ranges(kit.geometry.surface_ranges())?,
        IndexSet::from_ranges(kit.geometry.interior_ranges())?,
    ])?;
    let interior = stream.hand_off(interior, side)?;
    Ok(((None, Some(surface)), Some(interior)))
}

/// Enqueues the kernels that set the block to its initial values.
pub(super) fn initialise<'s, 't, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    side: Option<&Stream<'t, D>>,
    (block, inside): (&mut Block<'s, D>, &mut Inside<'t, D>),
) -> Result<()> {
    if let (Some(u), _) = block {
        return kit.kernels.initialise(stream, u);
    }
    if let Some(surface) = &mut block.1 {
        kit.kernels
            .initialise_part(stream, Which::Surface, surface)?;
    }
    if let (Some(interior), Some(side)) = (inside, side) {
        kit.kernels
            .initialise_part(side, Which::Interior, interior)?;
    }
    Ok(())
}

/// Gives the block to `check`, on the host.
///
/// The parts are copied: putting them together would make them other regions, and a recording
/// knows the ones that it was made with.
pub(super) fn inspect<'s, 't, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    side: Option<&Stream<'t, D>>,
    (block, inside): (Block<'s, D>, Inside<'t, D>),
    check: &mut dyn FnMut(&[f64]),
) -> Result<(Block<'s, D>, Inside<'t, D>)> {
    if let (Some(u), _) = block {
        let u = u.into_host(stream)?;
        D::look(&u, check)?;
        return Ok(((Some(u.on(stream)?), None), None));
    }
    let len = block.1.as_ref().map_or(0, Part::whole_len);
    let mut copy = Region::zeroed(kit.setup.world, len)?.on(stream)?;
    if let Some(surface) = &block.1 {
        kit.kernels
            .copy_part(stream, Which::Surface, surface, &mut copy)?;
    }
    let mut inside = inside;
    if let (Some(interior), Some(side)) = (inside.take(), side) {
        let interior = side.hand_off(interior, stream)?;
        kit.kernels
            .copy_part(stream, Which::Interior, &interior, &mut copy)?;
        inside = Some(stream.hand_off(interior, side)?);
    }
    D::look(&copy.into_host(stream)?, check)?;
    Ok((block, inside))
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
        (Some(u), _) => kit.kernels.pack(stream, u, packed),
        (None, Some(surface)) => kit.kernels.pack_part(stream, surface, packed),
        (None, None) => unreachable!("a block has a surface"),
    }?;
    kit.end(begun, Lane::Stream, "pack", || D::moment(stream, packed))
}

/// Enqueues the kernel that puts the messages by itself.
pub(super) fn send<'s, D: FacesDevice>(
    kit: &Kit<'_, D>,
    stream: &Stream<'s, D>,
    block: &Block<'s, D>,
    (packed, messages): (&mut Values<'s, D>, &[Message]),
    out: All<'_, 's, D>,
) -> Result<()> {
    kit.launched(1);
    let begun = kit.begin(|| D::moment(stream, packed))?;
    match block {
        (Some(u), _) => kit.kernels.send(stream, u, (&mut *packed, messages), out),
        (None, Some(surface)) => {
            let packed = (&mut *packed, messages);
            kit.kernels.send_part(stream, surface, packed, out)
        }
        (None, None) => unreachable!("a block has a surface"),
    }?;
    kit.end(begun, Lane::Stream, "send", || D::moment(stream, packed))
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
        (Some(u), _) => kit.kernels.unpack(stream, inbox, u),
        (None, Some(surface)) => kit.kernels.unpack_part(stream, inbox, surface),
        (None, None) => unreachable!("a block has a surface"),
    }?;
    kit.end(begun, Lane::Stream, "unpack", || moment(stream, block))
}

/// A moment of the stream that the surface is on.
fn moment<'s, D: FacesDevice>(stream: &Stream<'s, D>, block: &Block<'s, D>) -> Result<D::Moment> {
    match block {
        (Some(u), _) => D::moment(stream, u),
        (None, Some(surface)) => D::moment_at_part(stream, surface),
        (None, None) => unreachable!("a block has a surface"),
    }
}

/// The message to a neighbour as the source of a put.
pub(super) fn source<'b, 's, D: FacesDevice>(
    block: &'b Block<'s, D>,
    to: &'b Neighbour<D>,
) -> Result<Source<'b, 's, f64, D>> {
    match block {
        (Some(u), _) => u.with(&to.layout),
        (None, Some(surface)) => surface.with(&to.layout),
        (None, None) => unreachable!("a block has a surface"),
    }
}

/// Enqueues the compute kernel on the second stream, if there is one.
pub(super) fn compute<'t, D: FacesDevice>(
    kit: &Kit<'_, D>,
    side: Option<&Stream<'t, D>>,
    inside: &mut Inside<'t, D>,
) -> Result<()> {
    let (Some(interior), Some(side)) = (inside, side) else {
        return Ok(());
    };
    kit.launched(1);
    let begun = kit.begin(|| D::moment_at_part(side, interior))?;
    kit.kernels.compute(side, interior)?;
    kit.end(begun, Lane::Compute, "compute", || {
        D::moment_at_part(side, interior)
    })
}
