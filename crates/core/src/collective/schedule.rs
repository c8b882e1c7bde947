//! What one rank does in a collective, as data.
//!
//! # Model
//!
//! A collective is a list of *stages*. In each stage a rank sends spans of its buffers to slots of some ranks, and waits
//! until some ranks have filled its own slots. Then it moves data between slots and buffers: it copies, or reduces. A
//! stage is one or two batches of the stream (`window/round.rs`), and a stage begins when the one before it is over.
//!
//! A schedule knows no device and no window. Each rank makes its own, by arithmetic on ranks and lengths alone, and the
//! schedules of all ranks fit together: the k-th stage in which rank a sends to rank b belongs to the k-th stage in
//! which b receives from a. Every slot has two buffers, used in turn. A rank may therefore send again to a rank that has
//! not read the last data yet.
//!
//! The ranks of a schedule are `0..ranks`, and stand for the ranks of the world.

use std::collections::BTreeMap;

use super::nodes::Nodes;

/// A buffer of a call. If the call is in place, its schedule does not mention the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Buffer {
    Input,
    Output,
    /// Memory of the collective itself.
    Scratch,
    /// The numbers of rows that this rank sends to each rank, and those that it has received from each.
    Counts,
    Received,
}

/// A place in a buffer: the number of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) buffer: Buffer,
    pub(crate) first: usize,
}

impl Spot {
    pub(crate) fn new(buffer: Buffer, first: usize) -> Self {
        Spot { buffer, first }
    }

    /// So many elements further on.
    pub(crate) fn plus(self, elements: usize) -> Self {
        Spot::new(self.buffer, self.first + elements)
    }
}

/// The slot of a rank, or for a rank. If a rank has several slots for another, the key says which slot is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) rank: usize,
    pub(crate) key: u64,
}

/// Sends `count` elements to a slot of another rank, or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) what: Sent,
    pub(crate) to: Slot,
    pub(crate) from: Spot,
    pub(crate) count: usize,
}

/// The elements of a number of rows, where elements are bytes.
pub(crate) const NUMBER: usize = size_of::<u64>();

/// How many of its elements a send sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// As many rows of `size` elements as the number says that lies there.
    Rows {
        count: Spot,
        size: usize,
    },
    /// All, which are a number that must not be greater than this.
    Number(usize),
}

/// Where a local move reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Spot(Spot),
    /// An own slot, from this element on.
    Slot(Slot, usize),
}

impl From {
    /// So many elements further on.
    pub(crate) fn plus(self, elements: usize) -> Self {
        match self {
            From::Spot(spot) => From::Spot(spot.plus(elements)),
            From::Slot(slot, first) => From::Slot(slot, first + elements),
        }
    }
}

/// What a local move does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Copy,
    /// Replaces the destination by the first vector of a reduction. Others of the lane follow.
    First,
    /// Reduces the destination with the next vector.
    Next,
    /// Reduces the destination with the vector before it.
    Before,
    /// Copies as many rows of `size` elements as the number says that lies there.
    Rows {
        count: From,
        size: usize,
    },
    /// Copies a number that must not be greater than this.
    Number(usize),
}

/// Moves `count` elements within this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) how: How,
    pub(crate) from: From,
    pub(crate) to: Spot,
    pub(crate) count: usize,
}

/// A stage. Its lanes are independent of each other, and the moves of a lane are made in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) sends: Vec<Send>,
    /// The slots that are filled.
    pub(crate) receives: Vec<(Slot, usize)>,
    /// Moves at the same time as the sends.
    pub(crate) beside: Vec<Vec<Local>>,
    /// Moves when all slots are filled, and `beside` is over.
    pub(crate) behind: Vec<Vec<Local>>,
}

impl Stage {
    fn is_empty(&self) -> bool {
        self.sends.is_empty()
            && self.receives.is_empty()
            && self.beside.is_empty()
            && self.behind.is_empty()
    }
}

/// What a rank does in one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) stages: Vec<Stage>,
    /// The lengths of the slots for other ranks, and of those at other ranks.
    pub(crate) inbound: BTreeMap<Slot, usize>,
    pub(crate) outbound: BTreeMap<Slot, usize>,
    /// The elements of the scratch buffer.
    pub(crate) scratch: usize,
}

impl Schedule {
    /// Whether all that it does with what comes is one reduction.
    pub(crate) fn is_one_reduction(&self) -> bool {
        let reduces = |local: &Local| matches!(local.how, How::First | How::Next | How::Before);
        match &self.stages[..] {
            [] => true,
            [one] => matches!(&one.behind[..], [lane] if lane.iter().all(reduces)),
            _ => false,
        }
    }
}

/// This rank, and what bounds a stage.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The bytes of an element.
    pub(crate) size: usize,
    /// The most ranks that this rank sends to in a stage, and the most that it receives from.
    pub(crate) peers: usize,
    /// The most elements of a slot.
    pub(crate) piece: usize,
    /// Which ranks share a node.
    pub(crate) nodes: Nodes,
}

impl Job {
    /// The rank that comes so many ranks behind this one.
    pub(crate) fn after(&self, distance: usize) -> usize {
        (self.rank + distance) % self.ranks
    }

    /// The rank that comes so many ranks before this one.
    pub(crate) fn before(&self, distance: usize) -> usize {
        (self.rank + self.ranks - distance) % self.ranks
    }

    /// The other ranks.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, ranks) = (self.rank, self.ranks);
        (0..ranks).filter(move |other| *other != rank)
    }

    /// How many stages a step takes in which ranks at all distances exchange data.
    pub(crate) fn turns(&self) -> usize {
        (self.ranks - 1).div_ceil(self.peers).max(1)
    }

    /// The stage of a step in which two ranks of this distance exchange data. All ranks go through the distances in
    /// ascending order. So none of them waits for another in a circle, even if they put different numbers of distances
    /// in a stage.
    fn stage(&self, step: usize, distance: usize) -> usize {
        step * self.turns() + (distance - 1) / self.peers
    }

    /// The last stage of a step.
    pub(crate) fn end(&self, step: usize) -> usize {
        (step + 1) * self.turns() - 1
    }

    /// The pieces of a run of `count` elements: the first element of each, and its length.
    pub(crate) fn pieces(&self, count: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let piece = self.piece;
        let firsts = (0..count).step_by(piece);
        firsts.map(move |first| (first, piece.min(count - first)))
    }

    /// The piece of this number; it is empty if there are not so many.
    pub(crate) fn piece_of(&self, count: usize, number: usize) -> (usize, usize) {
        let first = number.saturating_mul(self.piece).min(count);
        (first, self.piece.min(count - first))
    }

    pub(crate) fn pieces_of(&self, count: usize) -> usize {
        count.div_ceil(self.piece)
    }
}

impl Schedule {
    fn at(&mut self, stage: usize) -> &mut Stage {
        if self.stages.len() <= stage {
            self.stages.resize_with(stage + 1, Stage::default);
        }
        &mut self.stages[stage]
    }

    /// Sends in a stage. No data is no message, and the receiver knows that.
    pub(crate) fn send_at(&mut self, stage: usize, to: Slot, from: Spot, count: usize) {
        self.put_at(stage, Sent::All, to, from, count);
    }

    fn put_at(&mut self, stage: usize, what: Sent, to: Slot, from: Spot, count: usize) {
        if count != 0 {
            let len = self.outbound.entry(to).or_default();
            *len = count.max(*len);
            self.at(stage).sends.push(Send {
                what,
                to,
                from,
                count,
            });
        }
    }

    /// Receives in a stage, and returns what was received.
    pub(crate) fn receive_at(&mut self, stage: usize, slot: Slot, count: usize) -> From {
        if count != 0 {
            let len = self.inbound.entry(slot).or_default();
            *len = count.max(*len);
            self.at(stage).receives.push((slot, count));
        }
        From::Slot(slot, 0)
    }

    /// Receives in a stage, and copies to a buffer.
    pub(crate) fn take_at(&mut self, stage: usize, slot: Slot, to: Spot, count: usize) {
        let from = self.receive_at(stage, slot, count);
        self.copy_behind(stage, from, to, count);
    }

    /// Like [`Schedule::send_at`], in the stage of a step that the ranks' distance determines.
    pub(crate) fn send(
        &mut self,
        job: &Job,
        step: usize,
        (to, key): (usize, u64),
        from: Spot,
        count: usize,
    ) {
        self.send_some(job, step, Sent::All, (to, key), from, count);
    }

    /// Like [`Schedule::send`], of data that a number says more about.
    pub(crate) fn send_some(
        &mut self,
        job: &Job,
        step: usize,
        what: Sent,
        (to, key): (usize, u64),
        from: Spot,
        count: usize,
    ) {
        let distance = (to + job.ranks - job.rank) % job.ranks;
        let slot = Slot { rank: to, key };
        self.put_at(job.stage(step, distance), what, slot, from, count);
    }

    /// Like [`Schedule::receive_at`], in the stage of a step that the ranks' distance determines.
    pub(crate) fn receive(
        &mut self,
        job: &Job,
        step: usize,
        (from, key): (usize, u64),
        count: usize,
    ) -> From {
        let distance = (job.rank + job.ranks - from) % job.ranks;
        let slot = Slot { rank: from, key };
        self.receive_at(job.stage(step, distance), slot, count)
    }

    /// Like [`Schedule::take_at`], in the stage of a step that the ranks' distance determines.
    pub(crate) fn take(
        &mut self,
        job: &Job,
        step: usize,
        (from, key): (usize, u64),
        to: Spot,
        count: usize,
    ) {
        let distance = (job.rank + job.ranks - from) % job.ranks;
        let slot = Slot { rank: from, key };
        self.take_at(job.stage(step, distance), slot, to, count);
    }

    /// Copies a part of what was received in the stage of a step that the ranks' distance determines.
    pub(crate) fn copy_behind_from(
        &mut self,
        job: &Job,
        step: usize,
        sender: usize,
        from: From,
        to: Spot,
        count: usize,
    ) {
        let distance = (job.rank + job.ranks - sender) % job.ranks;
        self.copy_behind(job.stage(step, distance), from, to, count);
    }

    /// Moves while a stage sends.
    pub(crate) fn beside(&mut self, stage: usize, lane: Vec<Local>) {
        self.at(stage).beside.push(lane);
    }

    /// Moves when a stage of a step has received, in which the distance to another rank puts it.
    pub(crate) fn behind(&mut self, job: &Job, step: usize, from: usize, lane: Vec<Local>) {
        let distance = (job.rank + job.ranks - from) % job.ranks;
        self.at(job.stage(step, distance)).behind.push(lane);
    }

    /// Copies while a stage sends.
    pub(crate) fn copy_beside(&mut self, stage: usize, from: Spot, to: Spot, count: usize) {
        if count != 0 {
            let (how, from) = (How::Copy, From::Spot(from));
            self.at(stage).beside.push(vec![Local {
                how,
                from,
                to,
                count,
            }]);
        }
    }

    /// Copies a long run beside the sends of a call, by pieces, so that no piece is sent late because of it.
    pub(crate) fn copy_pieces_beside(&mut self, job: &Job, from: Spot, to: Spot, count: usize) {
        for (number, (first, count)) in job.pieces(count).enumerate() {
            let stage = number * job.turns();
            self.copy_beside(stage, from.plus(first), to.plus(first), count);
        }
    }

    /// Copies when a stage has received.
    pub(crate) fn copy_behind(&mut self, stage: usize, from: From, to: Spot, count: usize) {
        if count != 0 {
            let how = How::Copy;
            self.at(stage).behind.push(vec![Local {
                how,
                from,
                to,
                count,
            }]);
        }
    }

    /// Reduces vectors in their order, when a stage has received. The first or the second vector may be the destination
    /// itself.
    pub(crate) fn fold_behind(&mut self, stage: usize, vectors: &[From], to: Spot, count: usize) {
        if count == 0 {
            return;
        }
        let own = From::Spot(to);
        let second = vectors.get(1) == Some(&own);
        let one = |(number, from): (usize, &From)| Local {
            how: match number {
                0 if second => How::Before,
                0 => How::First,
                _ => How::Next,
            },
            from: *from,
            to,
            count,
        };
        let moves = vectors.iter().enumerate().map(one);
        let lane: Vec<_> = moves.filter(|one| one.from != own).collect();
        if !lane.is_empty() {
            self.at(stage).behind.push(lane);
        }
    }

    /// Makes the scratch buffer hold at least so many elements.
    pub(crate) fn needs_scratch(&mut self, elements: usize) {
        self.scratch = self.scratch.max(elements);
    }

    /// Leaves out the stages in which this rank does nothing.
    pub(crate) fn finish(mut self) -> Self {
        self.stages.retain(|stage| !stage.is_empty());
        self
    }
}

/// Blocks of elements that lie one behind the other, one for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    Equal {
        ranks: usize,
        count: usize,
    },
    /// The first element of each block, and the end of the last.
    From(Vec<usize>),
}

impl Blocks {
    /// Blocks of these lengths.
    pub(crate) fn new(counts: &[usize]) -> Self {
        let mut end = 0;
        let ends = counts.iter().map(|count| {
            end += count;
            end
        });
        Blocks::From(std::iter::once(0).chain(ends).collect())
    }

    /// Blocks of one length.
    pub(crate) fn equal(ranks: usize, count: usize) -> Self {
        Blocks::Equal { ranks, count }
    }

    /// `count` elements, divided evenly. Blocks begin at multiples of 16 elements, so that devices can move them in large
    /// words. The last blocks may be shorter, or empty.
    pub(crate) fn split(ranks: usize, count: usize) -> Self {
        let each = count.div_ceil(ranks).next_multiple_of(16);
        let firsts = (0..=ranks).map(|rank| (rank * each).min(count));
        Blocks::From(firsts.collect())
    }

    pub(crate) fn first(&self, rank: usize) -> usize {
        match self {
            Blocks::Equal { count, .. } => rank * count,
            Blocks::From(firsts) => firsts[rank],
        }
    }

    pub(crate) fn count(&self, rank: usize) -> usize {
        match self {
            Blocks::Equal { count, .. } => *count,
            Blocks::From(firsts) => firsts[rank + 1] - firsts[rank],
        }
    }

    pub(crate) fn all(&self) -> usize {
        match self {
            Blocks::Equal { ranks, count } => ranks * count,
            Blocks::From(firsts) => firsts[firsts.len() - 1],
        }
    }

    /// The longest block.
    pub(crate) fn longest(&self) -> usize {
        match self {
            Blocks::Equal { count, .. } => *count,
            Blocks::From(firsts) => {
                let counts = firsts.windows(2).map(|pair| pair[1] - pair[0]);
                counts.max().unwrap_or(0)
            }
        }
    }
}
