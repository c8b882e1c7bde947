//! One stage of a collective, as batches that are made once.
//!
//! # Model
//!
//! In a round, a rank posts to some origins, puts to some targets, and waits for those origins. All of that is one
//! batch, in which the posts come first. It also contains local moves: those *beside* the puts, and those *behind* a
//! wait that need the data of only one origin. The latter follow in the lane of that wait. The other moves behind the
//! waits are a second batch. Of a short reduction, [one lane](super::one_lane) does everything but the posts.
//!
//! Where lanes go side by side, the waits of a long call are *late*: each stands in the batch of the next round, with the
//! moves behind it and the post of that round. So a piece is reduced or copied while the next one is on its way.
//!
//! Where long data are [pulled](super::pull), moves from slots become pulls. The last round that puts to a target also
//! waits until the target has read all data of the call.
//!
//! A round is a pair of epochs, like those of [`exchange`](super::exchange), for the origins and targets that it names.
//! The post exposes the buffer that the round after the next fills. So it comes behind all moves of earlier rounds,
//! which read that buffer, and no slot is written while it is read.
//!
//! # Failure
//!
//! A round that is refused has enqueued nothing, or only its first batch. Then the caller revokes the window.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_hal::batch::{Action, Awaited, Batch, Check, Move, Side, Step, Tag};
use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;
use tidegate_hal::site::CallSite;

use super::edge::{Edge, Touched};
use super::exposure::{signal_arms, signal_steps, wait_step};
use super::note::{Lanes, Note, What};
use super::one_lane::is_one_lane;
use super::plan::lower;
use super::programs::programs;
use super::pull::{Address, are_pulled, has_read, pull_step, until_read};
use super::round_plan::{
    LocalAction, LocalMove, Origin, Put, Putting, Receive, RoundPlan, is_apart, only_origin,
};
use super::{BySlot, Half, Inbox, Link, Outbox, Peer, submit, submit_armed};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::half_kind::HalfKind;
use crate::nic::{NicLine, Tickets, Touch};
use crate::observe::EpochCall;
use crate::stream::{Arm, Stream, settle_all};

/// The tickets of the regions that a batch writes, if a NIC accesses regions of this window directly.
struct Uses {
    touched: Vec<(Arc<Tickets>, Touch)>,
}

/// A round, ready to be enqueued any number of times.
pub(crate) struct Round<D: Device> {
    /// Empty if the round neither posts, puts, waits nor moves beside.
    first: Option<Arc<Batch>>,
    behind: Option<Arc<Batch>>,
    /// The programs for the posts, and for the puts.
    arms: [Vec<Arm<D>>; 2],
    /// The indices of origins and targets among the peers, in ascending order.
    origins: Vec<usize>,
    targets: Vec<usize>,
    /// What each batch uses, and what the NIC reads for the first.
    uses: [Uses; 2],
    sent: Vec<(Arc<Tickets>, Arc<NicLine>)>,
}

/// The indices of ranks among the peers, in ascending order.
fn indices<D: Device>(half: &Half<D>, ranks: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut members: Vec<_> = ranks.map(|rank| half.peer_of(rank)).collect();
    members.sort_unstable();
    members.dedup();
    members
}

impl<D: Device> Round<D> {
    /// Makes the rounds of a call. A second batch has at most `most` lanes.
    ///
    /// # Errors
    ///
    /// [`Error::Nic`] if the NIC refuses a program.
    ///
    /// # Safety
    ///
    /// Runs lie within their regions, which belong to the stream of the halves, and have elements of the window. Puts
    /// and moves fit the slots. Lanes of `beside` do not write what another lane of `beside` or a put accesses. The
    /// same holds among the lanes of `behind`. The operations fit the elements' type. The rounds are enqueued one after
    /// the other.
    pub(crate) unsafe fn all<T: Element>(
        inbox: &Inbox<'_, T, D, BySlot>,
        outbox: &Outbox<'_, T, D, BySlot>,
        plans: &[RoundPlan<'_, D>],
        most: usize,
    ) -> Result<Vec<Self>> {
        let size = size_of::<T>();
        let (inbound, outbound) = (inbox.half(), &outbox.held.half);
        // With one round there is nothing beside which a late wait could be.
        let late = most < usize::MAX
            && plans.len() > 1
            && (0..plans.len()).all(|number| {
                let (plan, next) = (&plans[number], plans.get(number + 1));
                may_be_late(inbound, outbound, plan, next, size)
            });
        let mut rounds = Vec::new();
        let mut earlier = None;
        let mut reads = reads_of(outbound, &outbox.held.edges, plans);
        for (number, plan) in plans.iter().enumerate() {
            let reads = reads.remove(&number).unwrap_or_default();
            // SAFETY: the caller's promise.
            rounds.push(unsafe { Self::new(inbox, outbox, plan, (earlier, late), (most, reads)) }?);
            earlier = late.then_some(plan);
        }
        if let Some(last) = earlier {
            // The reductions of the last round are a batch of their own: without waits, it may have all of a device.
            let end = RoundPlan {
                puts: Vec::new(),
                receives: Vec::new(),
                beside: Vec::new(),
                behind: Vec::new(),
            };
            let most = (most, Vec::new());
            // SAFETY: the caller's promise.
            rounds.push(unsafe { Self::new(inbox, outbox, &end, (Some(last), false), most) }?);
        }
        Ok(rounds)
    }

    /// Makes the batches of a round. The waits of an `earlier` round stand in it, and its own may be `late`. Its last batch
    /// also waits until targets have read the data of so many epochs.
    ///
    /// # Safety
    ///
    /// As for [`Round::all`].
    unsafe fn new<T: Element>(
        inbox: &Inbox<'_, T, D, BySlot>,
        outbox: &Outbox<'_, T, D, BySlot>,
        plan: &RoundPlan<'_, D>,
        (earlier, late): (Option<&RoundPlan<'_, D>>, bool),
        (most, reads): (usize, Vec<(usize, usize)>),
    ) -> Result<Self> {
        let (inbound, outbound) = (inbox.half(), &outbox.held.half);
        let edges = &outbox.held.edges;
        let (size, window) = (size_of::<T>(), inbound.window.id);
        let origins = indices(inbound, plan.receives.iter().map(|each| each.rank));
        let edge = |put: &Put<'_, D>| &edges[put.slot];
        let lanes = plan.puts.iter().map(|put| edge(put).lane);
        let targets = indices(outbound, lanes.map(|lane| outbound.peers[lane].rank));

        // The puts of the round. What is pulled is put by its address.
        let address = |put: &Put<'_, D>| {
            let peer = &outbound.peers[edge(put).lane];
            let pulled = matches!(put.what, Putting::All) && are_pulled(peer, put.count * size);
            pulled.then(|| Address::of(put.from.at(), size))
        };
        let addresses: Vec<_> = plan.puts.iter().map(address).collect();
        let note = |(put, address): (&Put<'_, D>, &Option<Address>)| Note {
            what: match put.what {
                Putting::All => What::Put,
                Putting::Rows { count, size } => What::PutRows {
                    count: (count.at(), count.region.id),
                    size,
                },
                Putting::Number(most) => What::PutNumber { most },
            },
            edge: put.slot as u32,
            first: 0,
            count: address.as_ref().map_or(put.count, |it| it.elements),
            local: match address {
                None => (put.from.at(), put.from.region.id),
                Some(address) => (address.at(), put.from.region.id),
            },
            local_layout: None,
            remote_layout: None,
        };
        let notes: Vec<_> = plan.puts.iter().zip(&addresses).map(note).collect();
        let direct = plan.puts.iter().filter(|put| edge(put).is_direct());
        let touched: Vec<_> = direct
            .clone()
            .map(|put| Touched {
                tickets: put.from.region.tickets().clone(),
                touch: Touch::Read,
                lane: Some(edge(put).lane),
            })
            .collect();
        let sent = direct.filter_map(|put| match &outbound.peers[edge(put).lane].link {
            Link::Nic(line) => Some((put.from.region.tickets().clone(), line.clone())),
            Link::Mapped { .. } => None,
        });
        let sent = sent.collect();
        let by_lane = Lanes::of(outbound.peers.len(), edges, &notes);
        let origin_peers = || origins.iter().map(|index| &inbound.peers[*index]);
        let arms = [
            signal_arms(inbound, origin_peers())?,
            programs(outbound, edges, &targets, &by_lane, &touched)?,
        ];
        let by_nic = arms.iter().any(|set| !set.is_empty());

        let post = |peer: &Peer| signal_steps(peer, window, Awaited::Exposure);
        let mut follows: Vec<&LocalMove<'_, D>> = Vec::new();
        // The waits, and behind each the moves that need nothing else.
        let mut waits: Vec<Vec<Step>> = Vec::new();
        let (mut later, mut posted) = (Vec::new(), Vec::new());
        // The round whose waits stand in this one.
        let awaits = earlier.or((!late).then_some(plan));
        let received = awaits.map_or(&[][..], |awaits| &awaits.receives);
        let awaited = indices(inbound, received.iter().map(|each| each.rank));
        let steps = |lane: &[LocalMove<'_, D>]| -> Vec<Step> {
            lane.iter()
                .flat_map(|one| lower_local(inbox, one, received))
                .collect()
        };
        for index in &awaited {
            waits.push(vec![wait_step(&inbound.peers[*index], window)]);
        }
        // Where lanes go side by side, which is where there is a limit to them, long reductions are faster as a batch
        // of their own. It has no waits, so it may have all of the device.
        let in_one = most < usize::MAX
            && (earlier.is_none() && !late)
            && is_one_lane([inbound, outbound], edges, plan, size);
        let is_alone = |lane: &[LocalMove<'_, D>]| {
            let reduces = |one: &LocalMove<'_, D>| matches!(one.action, LocalAction::Reduce { .. });
            most < usize::MAX && lane.iter().any(reduces)
        };
        for lane in awaits.iter().flat_map(|awaits| &awaits.behind) {
            if in_one {
                follows.extend(lane);
                continue;
            }
            let apart = is_alone(lane) && !late;
            let origin = follower(inbound, plan, lane, size).filter(|_| !apart);
            // Its slots may have come in an earlier round. Then no wait of this one is for them.
            let wait = origin.and_then(|index| awaited.binary_search(&index).ok());
            let has_room = |wait: &usize| {
                waits[*wait].len() == 1 || inbound.peers[awaited[*wait]].landed.is_none()
            };
            match wait.filter(has_room) {
                Some(wait) => {
                    waits[wait].extend(steps(lane));
                    follows.extend(lane);
                }
                None => later.push(lane),
            }
        }
        if earlier.is_some() {
            // These posts expose what the moves have read.
            for (index, lane) in awaited.iter().zip(&mut waits) {
                if origins.contains(index) {
                    lane.extend(post(&inbound.peers[*index]));
                    posted.push(*index);
                }
            }
        }
        // The origins whose data this rank reads. If some of that is in the second batch, they hear of it there.
        let readers = awaited.iter().zip(&mut waits);
        let readers = readers.filter(|(index, _)| inbound.peers[**index].reads.is_some());
        let mut told = Vec::new();
        for (index, lane) in readers {
            let origin = &inbound.peers[*index];
            let step = has_read(origin, window);
            let reads = |one: &LocalMove<'_, D>| matches!(one.from, Origin::Slot(rank, ..) if rank == origin.rank);
            match later.iter().any(|lane| lane.iter().any(reads)) {
                true => told.push(step),
                false => lane.push(step),
            }
        }
        let posts: Vec<_> = (origins.iter().filter(|index| !posted.contains(index)))
            .map(|index| post(&inbound.peers[*index]))
            .collect();
        let beside: Vec<_> = plan.beside.iter().map(|lane| steps(lane)).collect();
        // Windows whose regions no NIC accesses need no tickets.
        let has_lines = edges.iter().any(Edge::is_direct);
        let uses = |moves: &mut dyn Iterator<Item = &LocalMove<'_, D>>| {
            let mut touched: Vec<(Arc<Tickets>, Touch)> = Vec::new();
            for one in moves.filter(|_| has_lines) {
                let tickets = one.to.region.tickets();
                if !touched.iter().any(|(other, _)| Arc::ptr_eq(other, tickets)) {
                    touched.push((tickets.clone(), Touch::Write));
                }
            }
            Uses { touched }
        };
        let at_first = &mut plan.beside.iter().flatten().chain(follows);
        let uses = [
            uses(at_first),
            uses(&mut later.iter().flat_map(|lane| lane.iter())),
        ];

        // Where this rank reads in the second batch, so may a peer that waits for it. So this rank waits there, too.
        let reads = reads
            .iter()
            .map(|(index, epochs)| until_read(&outbound.peers[*index], window, *epochs));
        let (at_first, at_last) = match later.is_empty() {
            true => (reads.collect(), Vec::new()),
            false => (Vec::new(), reads.collect()),
        };
        let nothing =
            origins.is_empty() && targets.is_empty() && beside.is_empty() && waits.is_empty();
        let first = (!nothing).then(|| {
            let puts = lower(outbound, edges, &targets, &by_lane);
            let pulled = addresses.iter().any(Option::is_some);
            // Tools hear of the data, and not of their addresses.
            let puts = match pulled {
                true => {
                    let bytes = targets.iter().map(|target| {
                        let puts = plan.puts.iter().filter(|put| edge(put).lane == *target);
                        puts.map(|put| (put.count * size) as u64).sum()
                    });
                    puts.moved_by_others(bytes.collect())
                }
                false => puts,
            };
            let lanes: Vec<_> = waits.into_iter().chain(beside).chain(at_first).collect();
            let (puts, lanes) = match in_one {
                false => (Some(puts), lanes),
                true => {
                    let puts = puts.lanes().iter().flat_map(|lane| puts.steps(*lane));
                    let reduces = plan.behind.iter().flat_map(|lane| steps(lane));
                    let lane = puts.copied().chain(lanes.into_iter().flatten());
                    (None, vec![lane.chain(reduces).collect()])
                }
            };
            // SAFETY: words lie in blocks that the halves hold. Posts, puts and waits touch different words, as in an
            // exchange. The moves of the puts write slots of peers. The moves beside and behind the waits write regions
            // of the stream. The caller promises that the former touch nothing that others write, and `follower` has
            // checked that of the latter, or `may_be_late`. They read slots that their lane has waited for, and that are
            // exposed again by a post of a later batch, or behind them. Moves into a lane that has a landing were left
            // out. Only if `is_one_lane` has checked what a short reduction may be, there is one. It is the only lane of
            // `lanes`, and the others post.
            let (posts, waits) = unsafe {
                let keep = addresses.into_iter().flatten().map(Address::keep);
                let posts = Batch::new(posts, keep.collect());
                (posts, Batch::new(lanes, Vec::new()))
            };
            let parts = [Some(posts), puts, Some(waits)].map(|part| part.map(Arc::new));
            let parts: Vec<_> = parts.iter().flatten().collect();
            // SAFETY: as above.
            Arc::new(unsafe { Batch::join(&parts) }.helped(by_nic))
        });
        let behind = (!later.is_empty()).then(|| {
            // What tells origins stands behind all moves.
            let lanes = if told.is_empty() { most } else { 1 };
            let each = later.len().div_ceil(lanes);
            let lanes = later.chunks(each);
            let lanes = lanes.map(|lanes| -> Vec<Step> {
                let moves = lanes.iter().flat_map(|lane| steps(lane));
                moves.chain(told.iter().copied()).collect()
            });
            let lanes = lanes.chain(at_last);
            // SAFETY: the stream has waited for all slots that the moves read, and until a post of a later batch only
            // this batch uses the buffers that the operands choose. The caller promises the rest.
            Arc::new(unsafe { Batch::new(lanes, Vec::new()) })
        });
        Ok(Round {
            first,
            behind,
            arms,
            origins,
            targets,
            uses,
            sent,
        })
    }

    /// The batches, in their order.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Arc<Batch>> {
        self.first.iter().chain(&self.behind)
    }

    /// Refuses the round if a peer cannot have so many epochs more.
    pub(crate) fn admit<T: Element>(
        &self,
        inbox: &Inbox<'_, T, D, BySlot>,
        outbox: &Outbox<'_, T, D, BySlot>,
        epochs: u64,
    ) -> Result<()> {
        let (inbound, outbound) = (&inbox.half().epochs, &outbox.held.half.epochs);
        inbound.admit_more(Some(&self.origins), epochs)?;
        outbound.admit_more(Some(&self.targets), epochs)
    }

    /// Enqueues the round, which has been [admitted](Round::admit). `begun` becomes true when other ranks may count on the rest of it.
    ///
    /// # Errors
    ///
    /// Those of an exchange.
    pub(crate) fn submit<'s, T: Element>(
        &self,
        stream: &Stream<'s, D>,
        inbox: &Inbox<'s, T, D, BySlot>,
        outbox: &Outbox<'s, T, D, BySlot>,
        (call, site): (EpochCall, CallSite),
        begun: &mut bool,
    ) -> Result<()> {
        let (inbound, outbound) = (inbox.half(), &outbox.held.half);
        if let Some(batch) = &self.first {
            self.uses[0].settle(stream, site)?;
            let arms: [&[Arm<D>]; 2] = [&self.arms[0], &self.arms[1]];
            submit_armed(stream, &arms, batch, call, site)?;
            *begun = true;
            inbound.window.waits_at(HalfKind::Inbox, site);
            outbound.window.waits_at(HalfKind::Outbox, site);
            inbound.epochs.took(stream, Some(&self.origins));
            outbound.epochs.took(stream, Some(&self.targets));
            for (tickets, line) in &self.sent {
                tickets.add(line, Touch::Read);
            }
        }
        if let Some(batch) = &self.behind {
            self.uses[1].settle(stream, site)?;
            submit(stream, batch, call, site)?;
        }
        Ok(())
    }
}

impl Uses {
    /// Enqueues the wait for operations of a NIC that the moves must not overtake.
    fn settle<D: Device>(&self, stream: &Stream<'_, D>, site: CallSite) -> Result<()> {
        if self.touched.iter().all(|(tickets, _)| !tickets.any()) {
            return Ok(());
        }
        let each = self
            .touched
            .iter()
            .map(|(tickets, touch)| (&**tickets, *touch));
        settle_all(stream, each, site)
    }
}

/// The origin whose wait a lane of moves can follow at once: the lane reads slots of this origin alone, and touches nothing
/// that others use at that time. A wait that looks at a landing can only have a copy of the whole slot behind it.
fn follower<D: Device>(
    half: &Half<D>,
    plan: &RoundPlan<'_, D>,
    lane: &[LocalMove<'_, D>],
    size: usize,
) -> Option<usize> {
    let rank = only_origin(lane)?;
    let index = half.peer_of(rank);
    let landed = half.peers[index].landed;
    let follows = landed.is_none_or(|landed| match lane {
        [one] => {
            let copies = matches!(
                (&one.action, &one.from),
                (LocalAction::Copy, Origin::Slot(.., 0))
            );
            let aligned = one.to.at().0.addr().is_multiple_of(4);
            copies && aligned && one.count * size == landed.bytes
        }
        _ => false,
    });
    (follows && is_apart(plan, lane, size)).then_some(index)
}

/// Whether the waits of a plan may stand in the round of the next one, with the moves behind them. Each of these lanes
/// follows a wait of its own, and uses nothing that the next round's puts use. A NIC has its own order.
fn may_be_late<D: Device>(
    inbound: &Half<D>,
    outbound: &Half<D>,
    plan: &RoundPlan<'_, D>,
    next: Option<&RoundPlan<'_, D>>,
    size: usize,
) -> bool {
    let is_mapped = |peer: &Peer| matches!(peer.link, Link::Mapped { .. }) && peer.landed.is_none();
    let is_plain = |one: &LocalMove<'_, D>| {
        matches!(one.action, LocalAction::Copy | LocalAction::Reduce { .. })
    };
    let mut origins = Vec::new();
    let follows = plan.behind.iter().all(|lane| {
        let origin = only_origin(lane);
        let has_come = |origin| plan.receives.iter().any(|each| each.rank == origin);
        let alone = origin.is_some_and(|origin| has_come(origin) && !origins.contains(&origin));
        origins.extend(origin);
        let apart = next.is_none_or(|next| is_apart(next, lane, size));
        alone && apart && lane.iter().all(is_plain)
    });
    follows && inbound.peers.iter().chain(&outbound.peers).all(is_mapped)
}

/// For how many epochs a round waits until targets have read: by round, the index of each such target among the peers, and
/// the number. No round writes what an earlier one of the call has put, so it is enough if the last one waits.
fn reads_of<D: Device>(
    outbound: &Half<D>,
    edges: &[Edge],
    plans: &[RoundPlan<'_, D>],
) -> BTreeMap<usize, Vec<(usize, usize)>> {
    let mut epochs = BTreeMap::new();
    let mut last = 0;
    for (number, plan) in plans.iter().enumerate() {
        let mut targets: Vec<_> = plan.puts.iter().map(|put| edges[put.slot].lane).collect();
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            if outbound.peers[target].reads.is_some() {
                *epochs.entry(target).or_default() += 1;
                last = number;
            }
        }
    }
    BTreeMap::from([(last, epochs.into_iter().collect())])
}

/// The steps of a local move, which reads slots of what was received.
fn lower_local<T: Element, D: Device>(
    inbox: &Inbox<'_, T, D, BySlot>,
    one: &LocalMove<'_, D>,
    received: &[Receive],
) -> impl Iterator<Item = Step> + use<T, D> {
    let half = inbox.half();
    if let (LocalAction::Copy, Origin::Slot(rank, slot, offset)) = (&one.action, &one.from) {
        let origin = &half.peers[half.peer_of(*rank)];
        let mut received = received.iter();
        let put = received.find(|put| (put.rank, put.slot) == (*rank, *slot));
        let put = put.expect("moves read what was received");
        if are_pulled(origin, put.count * size_of::<T>()) {
            let to = (one.to.at(), one.count * size_of::<T>());
            let (side, _) = inbox.side(*slot);
            let step = pull_step(origin, half.window.id, (side.base, side.flip), *offset, to);
            return None.into_iter().chain([step]);
        }
    }
    let place = |from: &Origin<'_, D>| match *from {
        Origin::Run(run) => (Side::linear(run.at()), Ptr::NULL, 2),
        Origin::Slot(rank, slot, offset) => {
            let (side, parity) = inbox.side(slot);
            let base = side.base.byte_add(offset);
            let ring = inbox.half().peers[inbox.half().peer_of(rank)].ring;
            let buffers = ring.map_or(2, |ring| ring.buffers);
            (Side { base, ..side }, parity, buffers)
        }
    };
    let (src, parity, buffers) = place(&one.from);
    let bytes = one.count * size_of::<T>();
    let (action, size, count) = match &one.action {
        LocalAction::Copy | LocalAction::CopyNumber(_) => (Action::Copy, size_of::<T>(), one.count),
        LocalAction::CopyRows { count, size } => {
            // Both are of the same peer, if they are slots, and so of one parity.
            let (Side { base, flip, .. }, ..) = place(count);
            (Action::CopyUpTo { count: base, flip }, *size, bytes / size)
        }
        LocalAction::Reduce {
            op,
            scalar,
            parts,
            before,
        } => {
            let (op, scalar, before) = (*op, *scalar, *before);
            let action = Action::Fold { op, scalar, before };
            (action, scalar.bytes(), one.count * parts)
        }
    };
    let check = match one.action {
        LocalAction::CopyNumber(most) => Some(Step::Check(Check {
            count: src.base,
            most,
            tag: Tag {
                window: Some(inbox.half().window.id),
                peer: inbox.half().world.rank() as u32,
                awaited: Awaited::Completion,
            },
        })),
        _ => None,
    };
    let step = Step::Move(Move {
        action,
        size: size as u32,
        count,
        src,
        dst: Side::linear(one.to.at()),
        parity,
        early: false,
        landing: None,
        buffers,
    });
    check.into_iter().chain([step])
}
