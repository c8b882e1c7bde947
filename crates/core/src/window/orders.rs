//! The order in which a target keeps copies of elements, for origins that reach it through staged memory.

use std::collections::BTreeMap;

use tidegate_hal::device::Device;

use super::describe::Description;
use super::edges::Edges;
use crate::error::{Disagreement, Error, WindowError};
use crate::footprint::Footprint;
use crate::layout::{Layout, Order};
use crate::world::{Trouble, World};

/// Refuses orders that are too long to be told to the targets.
pub(super) fn check_orders(name: &str, mine: &Description) -> Result<(), WindowError> {
    let orders = mine.outbound.iter().flat_map(|out| &out.order);
    let runs: usize = orders.map(Order::listed).sum();
    let (name, most) = (name.into(), Footprint::MOST_RUNS);
    match runs > most {
        true => Err(WindowError::TooManyRuns { name, runs, most }),
        false => Ok(()),
    }
}

/// The layouts of this rank's elements that far origins have declared, by the origin and the place among what it has
/// declared. The copy of the elements has their order.
pub(super) fn orders<D: Device>(
    world: &World<D>,
    edges: &Edges<'_>,
) -> Result<BTreeMap<(usize, usize), Layout<D>>, Trouble> {
    let mut orders = BTreeMap::new();
    let far = edges
        .neighbours
        .iter()
        .filter(|each| edges.is_far(each.rank));
    for origin in far {
        for (place, out) in origin.said.outbound.iter().enumerate() {
            let layout = match &out.order {
                None if matches!(out.elements, Footprint::Range(_)) => continue,
                None => None,
                Some(order) => match Layout::of_order(world, order) {
                    Err(Error::Region(_)) => None,
                    layout => Some(layout?),
                },
            };
            // Streams touch what the layout names, and all checks were made of the footprint.
            let same = |layout: &Layout<D>| layout.footprint().is_ok_and(|all| all == out.elements);
            let Some(layout) = layout.filter(same) else {
                let (rank, reason) = (origin.rank, "it declares a damaged layout".to_owned());
                return Err(Disagreement::Unreadable { rank, reason }.into());
            };
            orders.insert((origin.rank, place), layout);
        }
    }
    Ok(orders)
}
