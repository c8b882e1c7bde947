//! Short reductions, as one lane of a batch.
//!
//! # Model
//!
//! As a rule a round that reduces is two batches: the reduction begins when all waits are over. If all data of the round
//! [lands](tidegate_hal::batch#landings), one lane can do it: the puts, then the waits, then the reduction. The device
//! carries it out in one launch, and combines the elements as they come. A result that replaces the rank's own vector,
//! which the puts read, is right, too: within a lane steps have an order.

use std::ops::Range;

use tidegate_hal::device::Device;

use super::Half;
use super::edge::Edge;
use super::round::peer_of;
use super::round_plan::{LocalAction, LocalMove, Origin, Putting, RoundPlan, Run};

/// Whether one lane can do all that a round puts, receives and moves, posts aside.
pub(super) fn is_one_lane<D: Device>(
    [inbound, outbound]: [&Half<D>; 2],
    edges: &[Edge],
    plan: &RoundPlan<'_, D>,
    size: usize,
) -> bool {
    let [lane] = &plan.behind[..] else {
        return false;
    };
    let Some(first) = lane.first() else {
        return false;
    };
    let bytes = first.count * size;
    let is_even = |run: &Run<'_, D>| run.at().0.addr().is_multiple_of(4);
    let result = first.to.addresses(bytes);
    // Two runs of the lane are the same, or have nothing in common.
    let is_apart =
        |one: &Range<usize>| *one == result || one.end <= result.start || result.end <= one.start;

    // Everything that comes is a term of the reduction, and lands.
    let lands = plan.receives.iter().all(|received| {
        let peer = &inbound.peers[peer_of(inbound, received.rank)];
        let whole = received.count * size == bytes;
        whole && peer.landed.is_some_and(|landed| landed.bytes == bytes)
    });
    let slots = || lane.iter().filter_map(slot_of);
    let has = |received: (usize, usize)| slots().filter(|slot| *slot == received).count() == 1;
    let all = plan.receives.iter().all(|it| has((it.rank, it.slot)));
    let is_term = |one: &LocalMove<'_, D>| {
        let reduces = matches!(one.action, LocalAction::Reduce { .. });
        let same = one.count == first.count && one.to.at() == first.to.at();
        let reads = match &one.from {
            Origin::Run(run) => is_even(run) && is_apart(&run.addresses(bytes)),
            Origin::Slot(.., offset) => *offset == 0,
        };
        reduces && same && reads
    };
    let reduces = bytes.is_multiple_of(4) && is_even(&first.to) && lane.iter().all(is_term);

    // All that is put is as long, and lands, too. The device may make all puts only when all targets have posted. So each
    // target is an origin, too: this rank waits for it in any case.
    let puts = plan.puts.iter().all(|put| {
        let edge = &edges[put.slot];
        let target = outbound.peers[edge.lane].rank;
        let whole = matches!(put.what, Putting::All) && put.count * size == bytes;
        let even = is_even(&put.from) && is_apart(&put.from.addresses(bytes));
        let mutual = plan.receives.iter().any(|received| received.rank == target);
        whole && put.count == edge.len && edge.landing.is_some() && even && mutual
    });

    // A copy of the rank's own vector, which is a term then.
    let copies = match &plan.beside[..] {
        [] => true,
        [copy] => match &copy[..] {
            [
                LocalMove {
                    action: LocalAction::Copy,
                    from: Origin::Run(from),
                    to,
                    count,
                },
            ] => {
                let is_read = |one: &LocalMove<'_, D>| matches!(&one.from, Origin::Run(run) if run.at() == to.at());
                let even = is_even(from) && is_even(to) && is_apart(&from.addresses(bytes));
                *count == first.count && even && lane.iter().any(is_read)
            }
            _ => false,
        },
        _ => false,
    };
    let is_whole = !plan.receives.is_empty() && slots().count() == plan.receives.len();
    is_whole && lands && all && reduces && puts && copies
}

/// The slot that a move reads, and its rank.
fn slot_of<D: Device>(one: &LocalMove<'_, D>) -> Option<(usize, usize)> {
    match one.from {
        Origin::Slot(rank, slot, _) => Some((rank, slot)),
        Origin::Run(_) => None,
    }
}
