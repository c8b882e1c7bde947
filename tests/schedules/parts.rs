//! A region in two parts: every `step`-th element, and the others, possibly on another stream.

use tidegate::IndexSet;
use tidegate::generic::{On, Part, Region};
use tidegate::host::prelude::*;

use super::bag::{Elem, Keep, put, take};
use super::context::{Context, remote, ways};
use super::device::Bench;
use super::job::{Act, Ranks};
use super::lane::Lane;

pub(crate) struct Surface<'a> {
    pub(crate) region: usize,
    pub(crate) step: usize,
    pub(crate) salt: u64,
    /// The chosen elements are put while the others are changed. If `None`, both are changed.
    pub(crate) epoch: Option<(usize, &'a Ranks, &'a [Act])>,
}

fn sets(len: usize, step: usize) -> Result<[IndexSet; 2]> {
    let chosen = |is: bool| (0..len).filter(move |index| index.is_multiple_of(step) == is);
    Ok([
        IndexSet::from_indices(chosen(true))?,
        IndexSet::from_indices(chosen(false))?,
    ])
}

/// Does its work with the chosen elements.
fn use_chosen<'s, T: Elem, D: Bench>(
    cx: &Context<'_, D>,
    lane: &mut Lane<'s, D>,
    part: &mut Part<T, On<'s, D>>,
    surface: &Surface<'_>,
) -> Result<()> {
    let Some((window, group, acts)) = surface.epoch else {
        let salt = surface.salt + 1;
        return D::change_part(&cx.kernels, &lane.stream, part, surface.step, true, salt);
    };
    let outboxes = &mut <BySlot as Keep>::halves(T::shelf(&mut lane.bag)).2;
    let outbox = take(outboxes, window);
    let ways = ways(&cx.job.windows[window], cx.rank, &outbox);
    let mut epoch = match group {
        None => outbox.start(),
        Some(ranks) => outbox.start_to(&cx.groups[ranks])?,
    };
    for act in acts {
        let to = remote(cx, ways[&act.edge], act);
        epoch.put(part.with(&cx.layouts[&act.lay])?, to)?;
    }
    put(outboxes, window, epoch.complete(&lane.stream)?);
    Ok(())
}

pub(crate) fn on_one<T: Elem, D: Bench>(
    cx: &Context<'_, D>,
    lane: &mut Lane<'_, D>,
    surface: &Surface<'_>,
) -> Result<()> {
    let region = take(&mut T::shelf(&mut lane.bag).0, surface.region);
    let sets = sets(region.len(), surface.step)?;
    let [mut chosen, mut others] = region.partition(sets)?;
    let (step, salt) = (surface.step, surface.salt);
    D::change_part(&cx.kernels, &lane.stream, &mut others, step, false, salt)?;
    use_chosen(cx, lane, &mut chosen, surface)?;
    let whole = Region::reunite([chosen, others])?;
    put(&mut T::shelf(&mut lane.bag).0, surface.region, whole);
    Ok(())
}

pub(crate) fn on_two<'t, T: Elem, D: Bench>(
    cx: &Context<'_, D>,
    lane: &mut Lane<'_, D>,
    side: &mut Lane<'t, D>,
    surface: &Surface<'_>,
) -> Result<()> {
    let region = take(&mut T::shelf(&mut lane.bag).0, surface.region);
    let sets = sets(region.len(), surface.step)?;
    let [mut chosen, others] = region.partition(sets)?;
    let mut away: Part<T, On<'t, D>> = lane.stream.hand_off(others, &side.stream)?;
    let (step, salt) = (surface.step, surface.salt);
    D::change_part(&cx.kernels, &side.stream, &mut away, step, false, salt)?;
    use_chosen(cx, lane, &mut chosen, surface)?;
    let back = side.stream.hand_off(away, &lane.stream)?;
    let whole = Region::reunite([chosen, back])?;
    put(&mut T::shelf(&mut lane.bag).0, surface.region, whole);
    Ok(())
}
