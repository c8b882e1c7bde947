//! The plans of an outbox. An open epoch collects notes; a complete makes of them a validated batch, which goes to the
//! stream.
//!
//! An epoch with the same notes as an earlier one uses that batch again. It costs one comparison for each note, without
//! validation and without allocation.

use std::sync::Arc;

use tidegate_hal::batch::{Add, Awaited, Batch, Move, QUANTUM, Step, Tag, Turn, Wait};
use tidegate_hal::device::Device;
use tidegate_hal::site::CallSite;

use super::edge::{Edge, Touched};
use super::note::{Draft, Lanes, Note, What, check_of, lower_note, parts};
use super::programs::programs;
use super::stages::{cut, stages};
use super::{Half, Link};
use crate::error::{EpochError, Error, Result, SlotName, push};
use crate::ground::visited;
use crate::layout::Layout;
use crate::nic::NicLine;
use crate::observe::EpochCall;
use crate::stream::{Arm, Stream, armed};

/// How many different epochs an outbox remembers.
const PLANS: usize = 8;

/// A validated epoch.
pub(super) struct Plan<D: Device> {
    /// The number of the group, or 0 for all targets.
    pub(super) group: u64,
    notes: Vec<Note<D>>,
    pub(super) batch: Arc<Batch>,
    /// The programs that the NIC is armed with before the batch is submitted.
    pub(super) arms: Vec<Arm<D>>,
    /// The slots of the targets that the epoch does not put, once a recording has asked for them.
    unput: Option<Arc<[SlotName]>>,
    /// The batch joined with the post and wait of an exposure epoch, which the key identifies.
    pub(super) exchange: Option<((u64, u64), Arc<Batch>)>,
}

impl<D: Device> Plan<D> {
    /// The slots of the members that no note writes. Slots without elements are none of them.
    pub(super) fn unput(&mut self, edges: &[Edge], members: &[usize]) -> &Arc<[SlotName]> {
        let notes = &self.notes;
        self.unput.get_or_insert_with(|| {
            let mut put: Vec<u32> = notes.iter().map(|note| note.edge).collect();
            put.sort_unstable();
            let edges = (0..).zip(edges).filter(|(number, edge)| {
                let is_slot = edge.name.what == "slot" && edge.len > 0;
                is_slot
                    && members.binary_search(&edge.lane).is_ok()
                    && put.binary_search(number).is_err()
            });
            edges.map(|(_, edge)| (*edge.name).clone()).collect()
        })
    }
}

/// The plans of an outbox, and the notes of the open epoch.
pub(super) struct Plans<D: Device> {
    plans: Vec<Plan<D>>,
    /// The index of the plan that the open epoch has repeated so far.
    following: Option<usize>,
    followed: usize,
    /// The notes of the open epoch, if it does not repeat a plan.
    notes: Vec<Note<D>>,
    group: u64,
}

impl<D: Device> Plans<D> {
    pub(super) fn new() -> Self {
        Plans {
            plans: Vec::new(),
            following: None,
            followed: 0,
            notes: Vec::new(),
            group: 0,
        }
    }

    /// The batches of the plans, in the order in which they were made.
    #[cfg(test)]
    pub(super) fn batches(&self) -> impl Iterator<Item = &Arc<Batch>> {
        self.plans.iter().map(|plan| &plan.batch)
    }

    /// Opens an epoch for a group.
    pub(super) fn begin(&mut self, group: u64) {
        self.group = group;
        self.followed = 0;
        self.notes.clear();
        self.following = self.plans.iter().position(|plan| plan.group == group);
    }

    /// Notes an operation if it is the next one of the plan that the open epoch repeats. Returns whether it is.
    #[inline]
    pub(super) fn repeats(&mut self, draft: &Draft<'_, D>) -> bool {
        let next = self
            .following
            .and_then(|index| self.plans[index].notes.get(self.followed));
        let repeats = next.is_some_and(|note| draft.is(note));
        self.followed += usize::from(repeats);
        repeats
    }

    /// Notes an operation that differs from the plan that the open epoch seemed to repeat. The epoch may repeat another
    /// plan, or be a new one.
    #[cold]
    pub(super) fn departs(&mut self, draft: &Draft<'_, D>) {
        if let Some(index) = self.following {
            let begun = &self.plans[index].notes[..self.followed];
            let agrees = |plan: &Plan<D>| {
                plan.group == self.group
                    && plan.notes.len() > begun.len()
                    && draft.is(&plan.notes[begun.len()])
                    && begun.iter().zip(&plan.notes).all(|(a, b)| a.draft().is(b))
            };
            self.following = self.plans.iter().position(agrees);
            if self.following.is_some() {
                self.followed += 1;
                return;
            }
            let begun = begun.to_vec();
            self.notes.extend(begun);
        }
        self.notes.push(draft.to_note());
    }

    /// The plan whose notes the open epoch has repeated completely.
    fn repeated(&self) -> Option<usize> {
        let index = self.following?;
        let whole = |plan: &Plan<D>| plan.notes.len() == self.followed;
        if whole(&self.plans[index]) {
            return Some(index);
        }
        // An epoch that ends before the plan that it repeated may still equal a shorter plan.
        let begun = &self.plans[index].notes[..self.followed];
        self.plans.iter().position(|plan| {
            plan.group == self.group
                && whole(plan)
                && begun.iter().zip(&plan.notes).all(|(a, b)| a.draft().is(b))
        })
    }

    /// The plan of the open epoch, which is made if it is new. The epoch stays open.
    pub(super) fn plan(
        &mut self,
        half: &Half<D>,
        edges: &[Edge],
        members: &[usize],
        touched: &[Touched],
    ) -> Result<&mut Plan<D>> {
        if let Some(index) = self.repeated() {
            return Ok(&mut self.plans[index]);
        }
        if let Some(index) = self.following.take() {
            let begun = self.plans[index].notes[..self.followed].to_vec();
            self.notes.extend(begun);
        }
        let mut lanes = Lanes::of(half.peers.len(), edges, &self.notes);
        validate(half, edges, members, &self.notes, &lanes)?;
        lanes.allocate(half.world.device(), half.window.element_size)?;
        let arms = programs(half, edges, members, &lanes, touched)?;
        let batch = Arc::new(lower(half, edges, members, &lanes));
        if self.plans.len() == PLANS {
            // The queue keeps the batch if some of its work is still to be carried out.
            self.plans.remove(0);
        }
        self.plans.push(Plan {
            group: self.group,
            notes: self.notes.clone(),
            batch,
            arms,
            unput: None,
            exchange: None,
        });
        let last = self.plans.len() - 1;
        (self.following, self.followed) = (Some(last), self.notes.len());
        self.notes.clear();
        Ok(&mut self.plans[last])
    }
}

/// Checks what only the whole epoch shows: targets outside of the group, and overlaps.
fn validate<D: Device>(
    half: &Half<D>,
    edges: &[Edge],
    members: &[usize],
    notes: &[Note<D>],
    lanes: &Lanes<'_, D>,
) -> Result<()> {
    for note in notes {
        let mut layouts = note.local_layout.iter().chain(&note.remote_layout);
        if !layouts.all(|layout| layout.fits(half.world.device())) {
            return Err(Error::Epoch(EpochError::OtherDevice));
        }
        let lane = edges[note.edge as usize].lane;
        // Members are in the order of the peers.
        if members.binary_search(&lane).is_err() {
            let (window, rank) = (half.window.named(), half.peers[lane].rank);
            return Err(Error::Epoch(EpochError::OutsideGroup { window, rank }));
        }
    }
    for &lane in members {
        // An operation that touches no element twice overlaps with nothing if it is the only one. So its pieces, of
        // which there may be many, are not listed.
        if let [note] = lanes.notes(lane)
            && note.remote_layout.as_ref().is_none_or(Layout::is_distinct)
        {
            continue;
        }
        // Runs are compared for each edge, since two edges of one target never share memory. Each run has the number of
        // its operation within the lane.
        let mut runs: Vec<(u32, usize, usize, u32)> = Vec::new();
        let notes = lanes.notes(lane);
        for (number, note) in (0u32..).zip(notes) {
            visited();
            if !is_atomic(note.what) {
                for (first, end) in note.extents() {
                    push(&mut runs, (note.edge, first, end, number))?;
                }
            }
        }
        runs.sort_unstable();
        // The furthest end of an edge so far, and the operation that reaches it.
        let mut reach: Option<(u32, usize, What)> = None;
        for (edge, first, end, number) in runs {
            let what = notes[number as usize].what;
            reach = reach.filter(|(of, ..)| *of == edge);
            if let Some((_, until, other)) = reach
                && first < until
                && !compatible(what, other)
            {
                // No two slots or ranges of a target share memory, so one of them was used twice.
                return Err(Error::Epoch(EpochError::Overlap {
                    window: half.window.named(),
                    slot: edges[edge as usize].name.clone(),
                    first,
                    end: end.min(until),
                }));
            }
            if reach.is_none_or(|(_, until, _)| end > until) {
                reach = Some((edge, end, what));
            }
        }
    }
    Ok(())
}

fn is_atomic(what: What) -> bool {
    match what {
        What::Put
        | What::PutCounted { .. }
        | What::PutRows { .. }
        | What::PutNumber { .. }
        | What::Get => false,
        What::Accumulate { atomic, .. } | What::FetchOp { atomic, .. } => atomic,
        What::CompareSwap { .. } => true,
    }
}

/// Whether two operations may touch the same elements: both read, or both accumulate with the same operation. A lane
/// carries operations out in order, but a device may spread one move over several threads, and the next move over
/// others.
fn compatible(a: What, b: What) -> bool {
    matches!((a, b), (What::Get, What::Get)) || (matches!(a, What::Accumulate { .. }) && a == b)
}

/// The batch of an epoch: a lane for each member.
pub(super) fn lower<D: Device>(
    half: &Half<D>,
    edges: &[Edge],
    members: &[usize],
    by_lane: &Lanes<'_, D>,
) -> Batch {
    let window = Some(half.window.id);
    let lanes: Vec<Vec<Step>> = members
        .iter()
        .map(|&lane| {
            let peer = &half.peers[lane];
            let tag = Tag {
                window,
                peer: peer.rank as u32,
                awaited: Awaited::Exposure,
            };
            let told = Tag {
                awaited: Awaited::Completion,
                ..tag
            };
            let wait = Wait {
                word: peer.word,
                operand: peer.operand,
                quantum: QUANTUM,
                tag,
                landed: None,
                ring: None,
            };
            let wait = Step::Wait(wait);
            let size = half.window.element_size;
            let notes = by_lane.notes(lane);
            let checks = notes.iter().filter_map(|note| check_of(note, told));
            let mut steps = Vec::new();
            match &peer.link {
                Link::Mapped { word, bell } => {
                    let add = Add {
                        word: *word,
                        value: QUANTUM,
                        bell: *bell,
                        tag: Some(told),
                        turn: peer.ring.map(|ring| Turn::Flag {
                            ring,
                            operand: peer.operand,
                        }),
                    };
                    steps.push(wait);
                    steps.extend(checks);
                    let alone = notes.len() == 1;
                    for note in notes {
                        visited();
                        let edge = &edges[note.edge as usize];
                        let mv = lower_note(note, edge, peer.operand, size);
                        // A landing takes the place of the signal, so it is used only if the epoch does nothing else to
                        // this target.
                        let landing = mv.landing.filter(|_| alone);
                        let whole = Move { landing, ..mv };
                        steps.extend(parts(whole, note, edge).map(Step::Move));
                    }
                    steps.extend([Step::Flush, Step::Add(add)]);
                }
                Link::Nic(line) if by_lane.is_staged(lane) => {
                    // The wait for the exposure comes last. A device may profit if the operand that chooses the buffer
                    // is the operand of the wait just before the moves.
                    if !half.world.ignores_tickets() {
                        steps.push(line.wait_for_buffer(peer.buffers, tag));
                    }
                    steps.push(wait);
                    steps.extend(checks);
                    let chunks = line.chunks(half.world.chunks());
                    let puts = by_lane.puts(lane);
                    let stages = stages(&puts, size, chunks);
                    let (gets, updates): (Vec<_>, Vec<_>) =
                        (by_lane.moved(lane)).partition(|(note, _)| note.what == What::Get);
                    let operands = updates
                        .iter()
                        .map(|(note, at)| note.move_here(*at, size, false));
                    steps.extend(operands.map(Step::Move));
                    // It counts the firings. If the stream waits for the end of this one, the wait counts it.
                    let fired = peer.fired.filter(|_| gets.is_empty());
                    steps.extend(fired.map(NicLine::count));
                    for (index, stage) in stages.iter().enumerate() {
                        steps.extend(stage.iter().map(|piece| {
                            let edge = &edges[piece.note.edge as usize];
                            let whole = lower_note(piece.note, edge, peer.operand, size);
                            Step::Move(cut(whole, piece))
                        }));
                        match stages.len() {
                            1 => steps.extend(line.ring(told)),
                            parts => steps.push(line.ring_part(index, parts, told)),
                        }
                    }
                    if let Some(operand) = peer.fired.filter(|_| !gets.is_empty()) {
                        // What the NIC gets is in its own memory then.
                        steps.push(line.wait_for_buffer(operand, tag));
                        let results = gets
                            .iter()
                            .map(|(note, at)| note.move_here(*at, size, true));
                        steps.extend(results.map(Step::Move));
                    }
                }
                Link::Nic(line) => {
                    steps.push(wait);
                    steps.extend(checks);
                    steps.push(line.issue());
                    steps.extend(line.ring(told));
                }
            }
            steps
        })
        .collect();
    let notes = members.iter().flat_map(|lane| by_lane.notes(*lane));
    let keep = notes.flat_map(|note| note.keeps(edges));
    let keep = keep.chain(by_lane.keep()).collect();
    let by_nic = |lane: &usize| matches!(half.peers[*lane].link, Link::Nic(_));
    let helped = members.iter().any(by_nic);
    // What a lane itself stages is seen in its moves.
    let sent = members
        .iter()
        .map(|lane| match by_nic(lane) && !by_lane.is_staged(*lane) {
            true => {
                let counts = by_lane.notes(*lane).iter().map(|note| note.count as u64);
                counts.sum::<u64>() * half.window.element_size as u64
            }
            false => 0,
        });
    let sent = if helped { sent.collect() } else { Vec::new() };
    // SAFETY: words, operands, bells and remote memory lie in blocks that the half holds. Counts were checked against
    // regions, slots and layouts when the operations were noted. Regions belong to the outbox's stream, and are
    // borrowed until the epoch is complete. Overlaps were refused above. The exposure that each lane waits for orders
    // its moves with the target; slots, ranges or atomicity keep them apart from other origins. Tables are kept by the
    // batch.
    (unsafe { Batch::new(lanes, keep) })
        .helped(helped)
        .moved_by_others(sent)
}

/// Submits a batch of window halves, and arms the NIC with the programs that the batch rings for.
#[inline]
pub(super) fn submit_armed<D: Device>(
    stream: &Stream<'_, D>,
    arms: &[&[Arm<D>]],
    batch: &Arc<Batch>,
    call: EpochCall,
    site: CallSite,
) -> Result<()> {
    if arms.iter().all(|set| set.is_empty()) {
        submit(stream, batch, call, site)
    } else {
        armed(stream, arms, batch, || submit(stream, batch, call, site))
    }
}

/// Submits a batch of a window half. `site` is the place of the program's call.
#[inline]
pub(super) fn submit<D: Device>(
    stream: &Stream<'_, D>,
    batch: &Arc<Batch>,
    call: EpochCall,
    site: CallSite,
) -> Result<()> {
    // SAFETY: the batches of a half are made in this folder. Words, bells and peers' memory lie in blocks that the half
    // holds, and that are retired in stream order. Sources and results are regions of this stream, which are retired in
    // stream order, too. The batch keeps index tables. Epochs order the accesses of other ranks, and slots, ranges or
    // atomicity keep origins apart.
    unsafe { stream.submit(batch, call, site) }
}
