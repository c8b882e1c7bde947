//! Where everything lies in the memory of one rank of a window.
//!
//! # Model
//!
//! A rank has a block of the device's memory, which peers of the same node map:
//!
//! ```text
//! a cell for each target (its exposures) | a cell for each origin (its completions) | data, in one buffer or two
//!   | landings of small slots, in as many buffers | rings
//! ```
//!
//! A ring has the slots of one origin, in as many buffers as fit it, each with a flag in front of them. They are not among
//! the data then.
//!
//! If NICs cannot access that memory, the rank has a second block in host memory, the *far* one, for the ranks that it
//! reaches by the NIC. It contains cells at the same offsets, the slots of far origins, and *staging*. Staging has a
//! copy of each slot of a far target, which the streams fill and the NIC sends from. The words of a far rank lie in the
//! far block. In a window by range, it also has a copy of each range of a far origin: the stream copies the elements
//! there when it posts, and back when it has waited. Gets read the copy, and updates change it. The operands stay in
//! the device's own memory, where its waits read them quickly.
//!
//! A rank knows only the shape of its own memory. It tells each neighbour the [`Place`]s of what concerns the
//! neighbour.

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::{Landing, Ring};
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Ptr, Sharing};
use tidegate_hal::process::memory::Readable;

use super::Kind;
use super::describe::room;
use super::edges::{Edges, Neighbour};
use super::ring::{RingAt, is_long};
use crate::error::Result;
use crate::nic::NicLine;

/// The shape of one rank's memory.
pub(super) struct Shape {
    /// In ascending order, like the origins.
    pub(super) targets: Vec<usize>,
    pub(super) origins: Vec<usize>,
    /// For each inbound slot, its offset in a buffer of its block.
    pub(super) slots: Vec<usize>,
    /// For each inbound slot with a landing, the offset of the landing in the block.
    pub(super) landings: Vec<Option<usize>>,
    /// In a window by range, what far origins access, in the order of the origins and of their declarations.
    pub(super) far_ranges: Vec<FarRange>,
    /// For each outbound slot or range of a far target, the offset of its staging in the far block.
    pub(super) staging: Vec<Option<usize>>,
    /// The size of the block, in bytes.
    pub(super) bytes: usize,
    /// The size of the far block, in bytes.
    pub(super) far_bytes: usize,
    /// The far targets and origins, in ascending order.
    far: Vec<usize>,
    /// The size of one buffer of data, near and far, in bytes.
    buffer: [usize; 2],
    /// The size of one buffer of landings, in bytes.
    landing_buffer: usize,
    /// For each origin whose slots are a ring: where it lies in the block.
    rings: Vec<Option<RingAt>>,
    /// For each origin whose memory this rank reads: its process.
    reads: Vec<Option<Readable>>,
    /// The size of one buffer of staging, in bytes.
    staging_buffer: usize,
    double: bool,
}

const CHECKED: &str = "sizes were checked";

/// Elements of this rank's memory that a far origin accesses.
pub(super) struct FarRange {
    pub(super) origin: usize,
    /// The first element (of a range), and the number of elements.
    pub(super) first: usize,
    pub(super) len: usize,
    /// The offset, in the far block, of the copy that NICs access. It has the elements in their order, without gaps.
    pub(super) copy: usize,
}

/// What a rank tells a neighbour about its memory. Offsets are in bytes, in the block that the neighbour accesses: the
/// far one if the two ranks are far from each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Place {
    /// The size of the block.
    pub(super) bytes: usize,
    /// If the neighbour is a target: its word for exposures.
    pub(super) exposed: usize,
    /// If it is an origin: its word for completions.
    pub(super) done: usize,
    /// For each slot that the neighbour puts to, or each range that it accesses by the NIC from staged memory, in the
    /// order of declaration: its offset, and that of its landing.
    pub(super) slots: Vec<(usize, Option<usize>)>,
    /// The distance from the buffer of even epochs to that of odd ones.
    pub(super) flip: usize,
    /// The same distance between landings.
    pub(super) landing_flip: usize,
    /// If the neighbour is an origin whose slots are a ring. The flip is the ring's stride then.
    pub(super) ring: Option<RingAt>,
    /// Whether the rank reads the neighbour's memory, if that is an origin with a ring.
    pub(super) reads: bool,
    /// In windows by range and atomic windows: where the memory begins.
    pub(super) memory: usize,
    /// How many elements it has.
    pub(super) len: usize,
}

impl Place {
    /// The landing of a slot, if it has one, in the block that is mapped at `base`.
    pub(super) fn landing(&self, slot: usize, base: Ptr) -> Option<Landing> {
        self.slots[slot].1.map(|at| Landing {
            base: base.byte_add(at),
            flip: self.landing_flip,
        })
    }
}

/// The words of a line. Lines of targets come first, then those of origins.
pub(super) fn words_of(lines: Ptr, line: usize) -> Ptr {
    lines.byte_add(line * NicLine::BYTES)
}

/// The index of a rank in an ascending list.
pub(super) fn index_of(rank: usize, ranks: &[usize]) -> usize {
    ranks
        .binary_search(&rank)
        .expect("the two sides of an edge know each other")
}

impl Shape {
    /// The size of a word with its operands: one cache line, since different peers add to neighbouring words.
    pub(super) const CELL: usize = 64;
    /// The offset of the operand in a cell.
    pub(super) const OPERAND: usize = 8;
    /// The offset of the operand for the wait for a staging buffer.
    pub(super) const BUFFERS: usize = 16;
    /// The offset of the operand for the wait for the end of a firing.
    pub(super) const FIRED: usize = 24;
    /// In a cell for exposures, the offset of the word that the target adds to when it has read this rank's memory, and that
    /// of its operand. Such a target is near, and so has neither of the two operands above.
    pub(super) const READ: usize = Self::FIRED;
    pub(super) const READ_OPERAND: usize = Self::BUFFERS;

    /// The shape of a rank's memory, if it and its neighbours fit together.
    pub(super) fn of(edges: &Edges<'_>) -> Self {
        let mine = edges.mine;
        let (targets, origins) = (edges.targets(), edges.origins());
        let is_far = |other: usize| edges.is_far(other);
        let is_ring = |other: usize| edges.is_ring(other);
        let (slots, buffer) = mine.slots(is_far, is_ring).expect(CHECKED);
        let neighbours = targets.iter().chain(&origins).copied();
        let mut far: Vec<_> = neighbours.filter(|other| is_far(*other)).collect();
        far.sort_unstable();
        far.dedup();
        let mut shape = Shape {
            far,
            targets,
            origins,
            slots,
            landings: Vec::new(),
            far_ranges: Vec::new(),
            staging: Vec::new(),
            bytes: 0,
            far_bytes: 0,
            buffer,
            landing_buffer: 0,
            rings: Vec::new(),
            reads: Vec::new(),
            staging_buffer: 0,
            double: mine.terms.buffers == 2,
        };
        let buffers = mine.terms.buffers as usize;
        let end = shape.data() + buffer[0] * buffers;
        for slot in &mine.inbound {
            let landing = edges.has_landing(slot).then(|| {
                let at = shape.landing_buffer;
                let bytes = Landing::room(slot.len * mine.terms.size);
                // Each landing has cache lines of its own, like a slot, since other origins write beside it.
                shape.landing_buffer = room(at, bytes, 1).expect(CHECKED);
                end + at
            });
            shape.landings.push(landing);
        }
        let end = shape.lay_rings(edges, end + shape.landing_buffer * buffers);
        // A block is never empty, so that every rank has one to share.
        shape.bytes = end.max(Self::CELL);
        let mut come = 0;
        let by_range = mine.terms.kind == Kind::Range;
        let far_origins = edges.neighbours.iter().filter(|each| is_far(each.rank));
        for origin in far_origins.filter(|_| by_range) {
            for out in &origin.said.outbound {
                let extent = out.elements.extent().unwrap_or(0..0);
                let (first, len) = (extent.start, out.elements.count());
                let (origin, copy) = (origin.rank, shape.data() + come);
                shape.far_ranges.push(FarRange {
                    origin,
                    first,
                    len,
                    copy,
                });
                come = room(come, len, mine.terms.size).expect(CHECKED);
            }
        }
        let begin = shape.data() + buffer[1] * buffers + come;
        for out in &mine.outbound {
            let target = edges.of(out.target).filter(|_| is_far(out.target));
            let len = target.and_then(|target| match by_range {
                true => Some(out.elements.count()),
                false => target.slot(out.key).map(|(_, len)| len),
            });
            let staging = len.map(|len| {
                let at = shape.staging_buffer;
                shape.staging_buffer = room(at, len, mine.terms.size).expect(CHECKED);
                begin + at
            });
            shape.staging.push(staging);
        }
        shape.far_bytes = begin + shape.staging_buffer * buffers;
        shape
    }

    /// Lays out the rings from an offset of the block on. Returns where they end.
    fn lay_rings(&mut self, edges: &Edges<'_>, mut end: usize) -> usize {
        let (mine, data) = (edges.mine, self.data());
        for origin in &self.origins {
            let neighbour = edges.of(*origin).filter(|_| edges.is_ring(*origin));
            let bytes = |index: &usize| mine.inbound[*index].len * mine.terms.size;
            let readable = neighbour.filter(|neighbour| {
                let mut bytes = neighbour.inbound.iter().map(bytes);
                bytes.any(is_long)
            });
            let readable = readable.and_then(|neighbour| neighbour.said.readable);
            self.reads
                .push(readable.filter(|origin| origin.can_be_read()));
            self.rings.push(neighbour.map(|neighbour| {
                let slots = || neighbour.inbound.iter();
                let lens = slots().map(|index| mine.inbound[*index].len);
                let (ring, lead) = RingAt::of(lens, mine.terms.size);
                let ring = ring.lying_at(end);
                // Until now they were counted from the end of the lead.
                slots().for_each(|index| self.slots[*index] += end + lead - data);
                end += ring.bytes();
                ring
            }));
        }
        end
    }

    /// How many exposures this rank counts of a target when the window opens: one for each of the `before` epochs that
    /// there have been, and `early` more. A target with a ring exposes all buffers but those of its next exposure.
    pub(super) fn exposures(
        &self,
        edges: &Edges<'_>,
        target: usize,
        (before, early): (u64, u64),
    ) -> u64 {
        let Some(target) = edges.of(target).filter(|_| edges.is_ring(target)) else {
            return before + early;
        };
        let lens = target.said.inbound.iter().map(|(_, len)| *len);
        let (ring, _) = RingAt::of(lens, edges.mine.terms.size);
        ring.exposed_at_first(before)
    }

    /// The ring of an origin's slots, in the block that is mapped at `base`.
    pub(super) fn ring(&self, origin: usize, base: Ptr) -> Option<Ring> {
        self.ring_at(origin).map(|ring| ring.at(base))
    }

    /// The process of an origin, if this rank reads its memory.
    pub(super) fn reads(&self, origin: usize) -> Option<Readable> {
        let index = self.origins.binary_search(&origin).ok()?;
        self.reads[index]
    }

    fn ring_at(&self, origin: usize) -> Option<RingAt> {
        let index = self.origins.binary_search(&origin).ok()?;
        self.rings[index]
    }

    /// Allocates the blocks: the near one, and the far one if some rank is far.
    pub(super) fn allocate<D: Device>(&self, device: &D) -> Result<(D::Block, Option<D::Block>)> {
        let near = device.alloc(self.bytes, Sharing::Peers)?;
        let far = self
            .is_staged()
            .then(|| device.alloc(self.far_bytes, Sharing::Nics))
            .transpose()?;
        Ok((near, far))
    }

    /// What a neighbour is told.
    pub(super) fn place(&self, edges: &Edges<'_>, neighbour: &Neighbour) -> Place {
        let other = neighbour.rank;
        let lane = |ranks: &[usize], at: fn(&Shape, usize) -> usize| {
            let index = ranks.binary_search(&other).ok();
            index.map_or(0, |index| at(self, index))
        };
        let slot = |index: &usize| (self.data() + self.slots[*index], self.landings[*index]);
        Place {
            bytes: if self.is_far(other) {
                self.far_bytes
            } else {
                self.bytes
            },
            exposed: lane(&self.targets, Shape::exposed),
            done: lane(&self.origins, Shape::done),
            slots: match self.far_ranges(other) {
                [] => neighbour.inbound.iter().map(slot).collect(),
                ranges => ranges.iter().map(|range| (range.copy, None)).collect(),
            },
            flip: self.flip(other),
            landing_flip: if self.double { self.landing_buffer } else { 0 },
            ring: self.ring_at(other),
            reads: self.reads(other).is_some(),
            memory: self.data(),
            len: edges.mine.memory,
        }
    }

    /// In a window by range, what a far origin accesses.
    pub(super) fn far_ranges(&self, origin: usize) -> &[FarRange] {
        let all = &self.far_ranges;
        let first = all.partition_point(|range| range.origin < origin);
        let end = all.partition_point(|range| range.origin <= origin);
        &all[first..end]
    }

    /// Whether some rank is far.
    pub(super) fn is_staged(&self) -> bool {
        !self.far.is_empty()
    }

    /// Whether this rank and another reach each other through staged memory.
    pub(super) fn is_far(&self, other: usize) -> bool {
        self.far.binary_search(&other).is_ok()
    }

    /// The block with the words and data of another rank.
    pub(super) fn of_rank<'a, B>(&self, other: usize, near: &'a B, far: Option<&'a B>) -> &'a B {
        far.filter(|_| self.is_far(other)).unwrap_or(near)
    }

    pub(super) fn exposed(&self, target: usize) -> usize {
        target * Self::CELL
    }

    pub(super) fn read(&self, target: usize) -> usize {
        self.exposed(target) + Self::READ
    }

    pub(super) fn done(&self, origin: usize) -> usize {
        (self.targets.len() + origin) * Self::CELL
    }

    /// The number of lines to other ranks.
    pub(super) fn lines(&self) -> usize {
        self.targets.len() + self.origins.len()
    }

    pub(super) fn data(&self) -> usize {
        self.lines() * Self::CELL
    }

    /// The distance in bytes from the buffer of even epochs to that of odd ones, for the data of a rank.
    pub(super) fn flip(&self, other: usize) -> usize {
        if let Some(ring) = self.ring_at(other) {
            return ring.stride;
        }
        let buffer = self.buffer[usize::from(self.is_far(other))];
        if self.double { buffer } else { 0 }
    }

    /// The landing of an inbound slot, if it has one, in the block that is mapped at `base`.
    pub(super) fn landing(&self, slot: usize, base: Ptr) -> Option<Landing> {
        self.landings[slot].map(|at| Landing {
            base: base.byte_add(at),
            flip: if self.double { self.landing_buffer } else { 0 },
        })
    }

    /// The distance in bytes between the two buffers of staging.
    pub(super) fn staging_flip(&self) -> usize {
        if self.double { self.staging_buffer } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::describe::{Description, Inbound, Outbound, Terms};
    use super::super::edges::tests::{meet, terms};
    use super::*;
    use crate::footprint::Footprint;

    /// The descriptions of ranks that each have a slot of so many bytes for every other. All of them are far from rank
    /// `far`.
    fn all(ranks: usize, buffers: u32, far: Option<usize>) -> Vec<Description> {
        let others = |rank: usize| (0..ranks).filter(move |other| *other != rank);
        let describe = |rank: usize| Description {
            terms: Terms {
                staged: true,
                ..terms(Kind::Slot, buffers)
            },
            memory: 0,
            inbound: others(rank)
                .map(|origin| Inbound {
                    origin,
                    key: 0,
                    len: 8 * (origin + 1),
                })
                .collect(),
            outbound: others(rank)
                .map(|target| Outbound {
                    target,
                    key: 0,
                    elements: Footprint::Range(0..0),
                    order: None,
                    expected: None,
                })
                .collect(),
            far: others(rank).filter(|other| Some(*other) == far).collect(),
            land_up_to: if rank == 3 { 16 } else { 24 },
            rings: Vec::new(),
            readable: None,
            started_alone: false,
        };
        (0..ranks).map(describe).collect()
    }

    /// Where everything lies in a rank's blocks: `(far, from, to)`.
    fn places(shape: &Shape, all: &[Description], rank: usize) -> Vec<(bool, usize, usize)> {
        let buffers = all[rank].terms.buffers as usize;
        let mut places = vec![(false, 0, shape.data())];
        if shape.is_staged() {
            places.push((true, 0, shape.data()));
        }
        for (slot, offset) in all[rank].inbound.iter().zip(&shape.slots) {
            for buffer in 0..buffers {
                let from = shape.data() + offset + buffer * shape.flip(slot.origin);
                places.push((shape.is_far(slot.origin), from, from + slot.len * 8));
            }
        }
        for (index, slot) in all[rank].inbound.iter().enumerate() {
            if let Some(landing) = shape.landing(index, Ptr::NULL) {
                for buffer in 0..buffers {
                    let from = landing.base.0.addr() + buffer * landing.flip;
                    assert!(from.is_multiple_of(16));
                    places.push((false, from, from + Landing::room(slot.len * 8)));
                }
            }
        }
        for staging in shape.staging.iter().flatten() {
            for buffer in 0..buffers {
                let from = staging + buffer * shape.staging_flip();
                // Every target has a slot of so many bytes for this rank.
                places.push((true, from, from + 64 * (rank + 1)));
            }
        }
        places
    }

    #[test]
    fn nothing_shares_memory_and_all_lies_within() {
        for buffers in [1, 2] {
            for far in [None, Some(0), Some(2)] {
                let all = all(4, buffers, far);
                for edges in meet(&all).unwrap() {
                    let (rank, shape) = (edges.rank, Shape::of(&edges));
                    assert_eq!(shape.is_staged(), far.is_some());
                    let mut places = places(&shape, &all, rank);
                    places.sort_unstable();
                    for pair in places.windows(2) {
                        assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?}");
                    }
                    for (far, _, to) in places {
                        assert!(to <= if far { shape.far_bytes } else { shape.bytes });
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_small_for_both_ends_and_near_has_a_landing() {
        // There is a slot of 8 bytes for origin 0, one of 16 bytes for origin 1, and so on.
        let mut all = all(4, 1, None);
        for each in &mut all {
            for slot in &mut each.inbound {
                slot.len = slot.origin + 1;
            }
        }
        let landed = |all: &[Description], rank: usize| -> Vec<usize> {
            let shape = Shape::of(&meet(all).unwrap()[rank]);
            let slots = all[rank].inbound.iter().zip(&shape.landings);
            slots
                .filter(|(_, landing)| landing.is_some())
                .map(|(slot, _)| slot.origin)
                .collect()
        };
        // Ranks 0 to 2 accept landings of up to 24 bytes, rank 3 of up to 16.
        assert_eq!(landed(&all, 0), [1, 2]);
        assert_eq!(landed(&all, 3), [0, 1]);
        // Data that comes by a NIC has no landing.
        all[1].far = vec![0];
        assert_eq!(landed(&all, 0), [2]);
        // A slot that shares its word with another slot has no landing either.
        let slot = Inbound {
            origin: 2,
            key: 1,
            len: 1,
        };
        all[0].inbound.push(slot);
        let second = all[2].outbound.iter().find(|out| out.target == 0);
        let second = Outbound {
            key: 1,
            ..second.cloned().expect("rank 2 puts to rank 0")
        };
        all[2].outbound.push(second);
        assert_eq!(landed(&all, 0), []);
    }

    #[test]
    fn only_far_ranks_are_staged() {
        let all = all(3, 2, Some(0));
        let edges = meet(&all).unwrap();
        let shape = Shape::of(&edges[1]);
        assert!(shape.is_far(0) && !shape.is_far(2));
        let staged: Vec<_> = shape.staging.iter().map(Option::is_some).collect();
        assert_eq!(staged, [true, false]);
        // All ranks are far from rank 0.
        let shape = Shape::of(&edges[0]);
        assert!(shape.is_far(1) && shape.is_far(2));
        assert_eq!(*shape.of_rank(1, &"near", Some(&"far")), "far");
    }
}
