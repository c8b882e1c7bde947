//! Short reductions, as one lane of a batch.
//!
//! # Model
//!
//! As a rule a round that reduces is two batches: the reduction begins when all waits are over. If all data of the
//! round lands, one lane can do everything: a [short reduction](tidegate_hal::batch#short-reductions) puts, waits, and
//! combines elements as they come, in one launch.
//!
//! The device may make all puts of the lane together, when all targets have posted. So a target that is late could hold
//! up the put to another one. That cannot happen: each target is an origin, too, and the slots have two buffers. So the
//! post that a put waits for was in the batch by which its target put to this rank one epoch before, and this rank has
//! waited for that. (Before the first post, a buffer is free.)

use std::ops::Range;

use tidegate_hal::batch::{MOST_REDUCED, same_or_apart};
use tidegate_hal::device::Device;

use super::Half;
use super::edge::Edge;
use super::round_plan::{LocalAction, LocalMove, Origin, Put, Putting, RoundPlan, Run};

/// Whether one lane can do everything that a round does, except for its posts.
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
    let short = Short {
        bytes,
        result: first.to.addresses(bytes),
    };
    let (puts, receives) = (&plan.puts, &plan.receives);
    let is_small = |number: usize| number <= MOST_REDUCED;
    if receives.is_empty() || !is_small(receives.len()) || !is_small(puts.len()) {
        return false;
    }

    // Everything that comes is a term, and lands.
    let lands = receives.iter().all(|received| {
        let peer = &inbound.peers[inbound.peer_of(received.rank)];
        let landed = peer.landed.is_some_and(|landed| landed.bytes == bytes);
        landed && received.count * size == bytes
    });
    let slots = || lane.iter().filter_map(slot_of);
    let is_read_once = |it: (usize, usize)| slots().filter(|slot| *slot == it).count() == 1;
    let all = receives.iter().all(|it| is_read_once((it.rank, it.slot)));
    let only = slots().count() == receives.len() && lane.len() <= receives.len() + 1;
    let is_term = |one: &LocalMove<'_, D>| {
        let reduces = matches!(one.action, LocalAction::Reduce { .. });
        let same = one.count == first.count && one.to.at() == first.to.at();
        let fits = match &one.from {
            Origin::Run(run) => short.may_read(run),
            Origin::Slot(.., offset) => *offset == 0,
        };
        reduces && same && fits
    };
    let reduces = short.may_read(&first.to) && lane.iter().all(is_term);

    // Everything that is put is as long, and lands, too.
    let is_put = |put: &Put<'_, D>| {
        let edge = &edges[put.slot];
        let target = outbound.peers[edge.lane].rank;
        let whole = matches!(put.what, Putting::All) && put.count == edge.len;
        let lands = edge.landing.is_some() && put.count * size == bytes;
        let is_origin = receives.iter().any(|received| received.rank == target);
        whole && lands && short.may_read(&put.from) && is_origin && edge.flip != 0
    };
    let is_copy = |one: &LocalMove<'_, D>| {
        let copies = matches!(one.action, LocalAction::Copy) && one.count == first.count;
        let sources = puts.iter().map(|put| &put.from);
        match &one.from {
            Origin::Run(from) => copies && short.may_copy(from, &one.to, sources, lane),
            Origin::Slot(..) => false,
        }
    };
    let copies = match &plan.beside[..] {
        [] => true,
        [one] => one.len() == 1 && one.iter().all(is_copy),
        _ => false,
    };
    lands && all && only && reduces && copies && puts.iter().all(is_put)
}

/// A short reduction: the length of its vectors, and where the result goes.
struct Short {
    bytes: usize,
    result: Range<usize>,
}

impl Short {
    /// Whether the lane may read a run: the device moves words of four bytes, and who writes one has read it before.
    fn may_read<D: Device>(&self, run: &Run<'_, D>) -> bool {
        let run = run.addresses(self.bytes);
        let aligned = (run.start | run.end).is_multiple_of(4);
        aligned && same_or_apart(&run, &self.result)
    }

    /// Whether the lane may copy a run that the result overwrites, for a term. Nothing else touches the copy.
    fn may_copy<'a, 'b: 'a, D: Device>(
        &self,
        from: &Run<'b, D>,
        to: &Run<'b, D>,
        mut sources: impl Iterator<Item = &'a Run<'b, D>>,
        lane: &[LocalMove<'_, D>],
    ) -> bool {
        let copy = to.addresses(self.bytes);
        let is_clear = |run: &Range<usize>| *run != copy && same_or_apart(run, &copy);
        let mut own = lane.iter().filter_map(|one| match &one.from {
            Origin::Run(run) => Some(run.addresses(self.bytes)),
            Origin::Slot(..) => None,
        });
        let clear = is_clear(&self.result)
            && is_clear(&from.addresses(self.bytes))
            && sources.all(|run| is_clear(&run.addresses(self.bytes)));
        clear && self.may_read(from) && self.may_read(to) && own.all(|run| run == copy)
    }
}

/// The slot that a move reads, and its rank.
fn slot_of<D: Device>(one: &LocalMove<'_, D>) -> Option<(usize, usize)> {
    match one.from {
        Origin::Slot(rank, slot, _) => Some((rank, slot)),
        Origin::Run(_) => None,
    }
}
