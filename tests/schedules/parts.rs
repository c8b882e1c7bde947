//! A region in two parts: every `step`-th element, and the others, perhaps on another stream.

use tidegate::prelude::*;
use tidegate::{BySlot, CellsMut, IndexSet};

use super::bag::{Elem, Keep, put, take};
use super::exec::{Context, remote};
use super::job::{Act, Ranks};
use super::rank::Lane;
use super::value::changed;

pub(crate) struct Surface<'a> {
    pub(crate) region: usize,
    pub(crate) step: usize,
    pub(crate) salt: u64,
    /// The chosen elements are put while the others are changed; without this, both are changed.
    pub(crate) epoch: Option<(usize, &'a Ranks, &'a [Act])>,
}

fn sets(len: usize, step: usize) -> Result<[IndexSet; 2]> {
    let chosen = |is: bool| (0..len).filter(move |index| index.is_multiple_of(step) == is);
    Ok([
        IndexSet::from_indices(chosen(true))?,
        IndexSet::from_indices(chosen(false))?,
    ])
}

/// A kernel that changes a part.
fn change<T: Elem>(step: usize, chosen: bool, salt: u64) -> impl Fn(CellsMut<'_, T>) + Clone {
    move |mut cells: CellsMut<'_, T>| {
        let mine = |index: &usize| index.is_multiple_of(step) == chosen;
        for index in (0..cells.whole_len()).filter(mine) {
            let salt = salt + u64::from(chosen);
            let new = changed(T::TY, cells.get(index).bits(), index, salt);
            cells.set(index, T::of(new));
        }
    }
}

/// Does with the chosen elements what is to be done.
fn use_chosen<'s, T: Elem>(
    cx: &Context<'_>,
    lane: &mut Lane<'s>,
    part: &mut Part<T, On<'s>>,
    surface: &Surface<'_>,
) -> Result<()> {
    let Some((window, group, acts)) = surface.epoch else {
        return lane
            .stream
            .launch(change::<T>(surface.step, true, surface.salt), part);
    };
    let outboxes = &mut <BySlot as Keep>::halves(T::shelf(&mut lane.bag)).2;
    let outbox = take(outboxes, window);
    let mut epoch = match group {
        None => outbox.start(),
        Some(ranks) => outbox.start_with(&cx.groups[ranks])?,
    };
    for act in acts {
        epoch.put(part.with(&cx.layouts[&act.lay])?, remote(cx, act))?;
    }
    put(outboxes, window, epoch.complete(&lane.stream)?);
    Ok(())
}

pub(crate) fn on_one<T: Elem>(
    cx: &Context<'_>,
    lane: &mut Lane<'_>,
    surface: &Surface<'_>,
) -> Result<()> {
    let region = take(&mut T::shelf(&mut lane.bag).0, surface.region);
    let sets = sets(region.len(), surface.step)?;
    let [mut chosen, mut others] = region.partition(sets)?;
    let kernel = change::<T>(surface.step, false, surface.salt);
    lane.stream.launch(kernel, &mut others)?;
    use_chosen(cx, lane, &mut chosen, surface)?;
    let whole = Region::reunite([chosen, others])?;
    put(&mut T::shelf(&mut lane.bag).0, surface.region, whole);
    Ok(())
}

pub(crate) fn on_two<'t, T: Elem>(
    cx: &Context<'_>,
    lane: &mut Lane<'_>,
    side: &mut Lane<'t>,
    surface: &Surface<'_>,
) -> Result<()> {
    let region = take(&mut T::shelf(&mut lane.bag).0, surface.region);
    let sets = sets(region.len(), surface.step)?;
    let [mut chosen, others] = region.partition(sets)?;
    let mut away: Part<T, On<'t>> = lane.stream.hand_off(others, &side.stream)?;
    let kernel = change::<T>(surface.step, false, surface.salt);
    side.stream.launch(kernel, &mut away)?;
    use_chosen(cx, lane, &mut chosen, surface)?;
    let back = side.stream.hand_off(away, &lane.stream)?;
    let whole = Region::reunite([chosen, back])?;
    put(&mut T::shelf(&mut lane.bag).0, surface.region, whole);
    Ok(())
}
