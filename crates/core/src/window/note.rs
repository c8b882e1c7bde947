//! The operations that an epoch notes, and the moves by which a stream carries them out.

use std::sync::Arc;

use tidegate_hal::batch::{Action, Check, Move, Op, Scalar, Shape, Side, Step, Tag};
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::Keep;

use super::cuts::{Cuts, side};
use super::edge::Edge;
use crate::error::Result;
use crate::ground::visited;
use crate::layout::{Chosen, Layout};

/// One operation, as `put` and the like note it.
#[derive(Clone)]
pub(super) struct Note<D: Device> {
    pub(super) what: What,
    pub(super) edge: u32,
    /// The first element, counted in the edge's memory.
    pub(super) first: usize,
    pub(super) count: usize,
    /// The region at this end: its address and its number. The number tells it from a later region at the same address.
    pub(super) local: (Ptr, u64),
    pub(super) local_layout: Option<Layout<D>>,
    pub(super) remote_layout: Option<Layout<D>>,
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum What {
    Put,
    /// A put of as many elements as a word of the stream says.
    PutCounted {
        count: (Ptr, u64),
    },
    /// A put of as many rows of `size` bytes as a word of the stream says.
    PutRows {
        count: (Ptr, u64),
        size: usize,
    },
    /// A put of a number of 8 bytes, which a kernel has written. The stream fails if it is greater than `most`.
    PutNumber {
        most: u64,
    },
    Get,
    Accumulate {
        op: Op,
        scalar: Scalar,
        atomic: bool,
    },
    FetchOp {
        op: Op,
        scalar: Scalar,
        atomic: bool,
        result: (Ptr, u64),
    },
    CompareSwap {
        scalar: Scalar,
        compare: (Ptr, u64),
        result: (Ptr, u64),
    },
}

/// A note that borrows its layouts. It is compared with the notes of a plan without copying them.
pub(super) struct Draft<'a, D: Device> {
    pub(super) what: What,
    pub(super) edge: u32,
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) local: (Ptr, u64),
    pub(super) local_layout: Option<&'a Layout<D>>,
    pub(super) remote_layout: Option<&'a Layout<D>>,
}

impl<D: Device> Draft<'_, D> {
    #[inline]
    pub(super) fn is(&self, note: &Note<D>) -> bool {
        let same = |a: Option<&Layout<D>>, b: &Option<Layout<D>>| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => a.same(b),
            _ => false,
        };
        self.edge == note.edge
            && self.local == note.local
            && self.first == note.first
            && self.count == note.count
            && self.what == note.what
            && same(self.local_layout, &note.local_layout)
            && same(self.remote_layout, &note.remote_layout)
    }

    pub(super) fn to_note(&self) -> Note<D> {
        Note {
            what: self.what,
            edge: self.edge,
            first: self.first,
            count: self.count,
            local: self.local,
            local_layout: self.local_layout.cloned(),
            remote_layout: self.remote_layout.cloned(),
        }
    }
}

impl<D: Device> Note<D> {
    /// The tables of the note's own layouts, to be kept alive.
    pub(super) fn layouts(&self) -> impl Iterator<Item = Keep> + '_ {
        let layouts = self.local_layout.iter().chain(&self.remote_layout);
        layouts.map(Layout::keep)
    }

    /// The tables of the note's layouts and of the edge's layout, to be kept alive.
    pub(super) fn keeps<'a>(&'a self, edges: &'a [Edge]) -> impl Iterator<Item = Keep> + 'a {
        let edge = &edges[self.edge as usize];
        let of_edge = edge.layout.iter().map(|chosen| chosen.keep.clone());
        self.layouts().chain(of_edge)
    }

    pub(super) fn draft(&self) -> Draft<'_, D> {
        Draft {
            what: self.what,
            edge: self.edge,
            first: self.first,
            count: self.count,
            local: self.local,
            local_layout: self.local_layout.as_ref(),
            remote_layout: self.remote_layout.as_ref(),
        }
    }

    /// Whether the operation only writes to the target.
    pub(super) fn is_put(&self) -> bool {
        matches!(
            self.what,
            What::Put | What::PutCounted { .. } | What::PutRows { .. } | What::PutNumber { .. }
        )
    }

    /// The move between this end's elements and memory for the NIC, where they lie in their order: there, or back.
    pub(super) fn move_here(&self, at: Ptr, size: usize, back: bool) -> Move {
        let there = Side::linear(at);
        let here = side_of(self.local.0, 0, self.local_layout.as_ref(), size);
        let (src, dst) = if back { (there, here) } else { (here, there) };
        Move {
            action: Action::Copy,
            size: size as u32,
            count: self.count,
            src,
            dst,
            parity: Ptr::NULL,
            buffers: 2,
            early: false,
            landing: None,
        }
    }

    /// The elements of the edge that the operation touches, in runs.
    pub(super) fn extents(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let linear = self.remote_layout.is_none();
        let linear = linear.then_some((self.first, self.first + self.count));
        let runs = self.remote_layout.iter().flat_map(Layout::runs);
        let shifted = runs.map(|(a, b)| (self.first + a, self.first + b));
        linear.into_iter().chain(shifted)
    }
}

/// The notes of an open epoch, sorted by lane. An epoch may have many notes and many lanes, so no code may look through
/// all notes for each lane.
pub(super) struct Lanes<'a, D: Device> {
    notes: Vec<Vec<&'a Note<D>>>,
    /// For each lane, whether data to its target is staged.
    staged: Vec<bool>,
    /// Memory for what NICs get and update in staged lanes, and where each note of a lane has its elements there.
    moved: Option<Arc<D::Block>>,
    at: Vec<Vec<usize>>,
}

impl<'a, D: Device> Lanes<'a, D> {
    pub(super) fn of(lanes: usize, edges: &[Edge], notes: &'a [Note<D>]) -> Self {
        let mut by_lane = Lanes {
            notes: vec![Vec::new(); lanes],
            staged: vec![false; lanes],
            moved: None,
            at: Vec::new(),
        };
        for edge in edges {
            visited();
            by_lane.staged[edge.lane] |= edge.staging.is_some();
        }
        for note in notes {
            visited();
            // An operation on no elements is neither a step of a batch nor a transfer. The epoch's signal goes without
            // it.
            if note.count != 0 {
                by_lane.notes[edges[note.edge as usize].lane].push(note);
            }
        }
        by_lane
    }

    /// Allocates memory that the NIC can access for the elements of gets and updates in staged lanes. Each note has
    /// memory of its own, because two notes may access the same elements.
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::error::Error::Device).
    pub(super) fn allocate(&mut self, device: &D, size: usize) -> Result<()> {
        let mut bytes = 0;
        let mut place = |note: &&Note<D>| {
            let at = bytes;
            if !note.is_put() {
                bytes += (note.count * size).next_multiple_of(64);
            }
            at
        };
        let places = |(notes, staged): (&Vec<&'a Note<D>>, &bool)| match staged {
            true => notes.iter().map(&mut place).collect(),
            false => Vec::new(),
        };
        self.at = self.notes.iter().zip(&self.staged).map(places).collect();
        if bytes != 0 {
            let block = device.alloc(bytes, Sharing::Nics)?;
            block.share_no_more();
            self.moved = Some(Arc::new(block));
        }
        Ok(())
    }

    /// The puts of a lane, in their order.
    pub(super) fn puts(&self, lane: usize) -> Vec<&'a Note<D>> {
        let notes = self.notes[lane].iter();
        notes.copied().filter(|note| note.is_put()).collect()
    }

    /// The notes of a staged lane that are no puts, with this end's memory for the NIC.
    pub(super) fn moved(&self, lane: usize) -> impl Iterator<Item = (&'a Note<D>, Ptr)> + '_ {
        let notes = self.moved.iter().flat_map(move |block| {
            let places = self.notes[lane].iter().zip(&self.at[lane]);
            places.map(|(note, at)| (*note, block.base().byte_add(*at)))
        });
        notes.filter(|(note, _)| !note.is_put())
    }

    /// What the memory of [`Lanes::moved`] lies in.
    pub(super) fn keep(&self) -> Option<Keep> {
        self.moved.as_ref().map(|block| block.clone() as Keep)
    }

    /// The notes of a lane that have elements, in their order.
    pub(super) fn notes(&self, lane: usize) -> &[&'a Note<D>] {
        &self.notes[lane]
    }

    /// Whether data to the target of a lane is staged.
    pub(super) fn is_staged(&self, lane: usize) -> bool {
        self.staged[lane]
    }
}

/// The moves of a note: one, unless it covers only some elements of a layout.
pub(super) fn parts<D: Device>(
    whole: Move,
    note: &Note<D>,
    edge: &Edge,
) -> impl Iterator<Item = Move> {
    let layout = edge.in_place();
    let some = layout.filter(|chosen| note.count != chosen.count);
    let cuts = some.map(|chosen| Cuts::new(chosen.shape, note.first, note.count));
    let one = some.is_none().then_some(whole);
    let first = note.first;
    let pieces = cuts.into_iter().flatten().map(move |(at, count)| {
        let here = |local| side(local, whole.size, at - first, count);
        let there = |remote| side(remote, whole.size, at, count);
        let (src, dst) = match whole.action {
            // The source of a get is the remote side. The other operations on a layout that have two sides are puts and
            // accumulates, whose source is here.
            Action::Copy if note.what == What::Get => (there(whole.src), here(whole.dst)),
            _ => (here(whole.src), there(whole.dst)),
        };
        Move {
            count,
            src,
            dst,
            ..whole
        }
    });
    one.into_iter().chain(pieces)
}

/// The elements of a layout of memory that begins at `base`, or the first ones there if there is no layout.
fn side_of<D: Device>(base: Ptr, flip: usize, layout: Option<&Layout<D>>, size: usize) -> Side {
    let (first, shape) = layout.map_or((0, Shape::Linear), Layout::shape);
    Side {
        base: base.byte_add(first * size),
        flip,
        shape,
    }
}

/// The check of the number that a note puts, if it does.
pub(super) fn check_of<D: Device>(note: &Note<D>, tag: Tag) -> Option<Step> {
    let What::PutNumber { most } = note.what else {
        return None;
    };
    let count = note.local.0;
    Some(Step::Check(Check { count, most, tag }))
}

/// An operation on elements of `size` bytes, as a stream carries it out. If its edge is a layout, the move covers all
/// elements of the layout.
pub(super) fn lower_note<D: Device>(note: &Note<D>, edge: &Edge, parity: Ptr, size: usize) -> Move {
    let local = side_of(note.local.0, 0, note.local_layout.as_ref(), size);
    // A staged put goes to a copy of the target's slot, from which the NIC sends. Other staged operations are the NIC's.
    let (base, flip) = match edge.staging {
        Some(staging) if note.is_put() => (staging.base, staging.flip),
        _ => (edge.base, edge.flip),
    };
    let remote = match edge.in_place() {
        Some(Chosen { first, shape, .. }) => Side {
            base: base.byte_add(first * size),
            flip,
            shape: *shape,
        },
        None => side_of(
            base.byte_add(note.first * size),
            flip,
            note.remote_layout.as_ref(),
            size,
        ),
    };
    let (action, src, dst) = match note.what {
        What::Put | What::PutNumber { .. } => (Action::Copy, local, remote),
        What::PutCounted { count } | What::PutRows { count, .. } => {
            let (count, flip) = (count.0, 0);
            (Action::CopyUpTo { count, flip }, local, remote)
        }
        What::Get => (Action::Copy, remote, local),
        What::Accumulate { op, scalar, atomic } => {
            (Action::Accumulate { op, scalar, atomic }, local, remote)
        }
        What::FetchOp {
            op,
            scalar,
            atomic,
            result,
        } => (
            Action::FetchOp {
                op,
                scalar,
                result: result.0,
                atomic,
            },
            local,
            remote,
        ),
        What::CompareSwap {
            scalar,
            compare,
            result,
        } => (
            Action::CompareSwap {
                scalar,
                compare: compare.0,
                result: result.0,
            },
            local,
            remote,
        ),
    };
    let parity = if edge.flip == 0 { Ptr::NULL } else { parity };
    let (size, count) = match note.what {
        What::PutRows { size: row, .. } => (row, note.count * size / row),
        _ => (size, note.count),
    };
    Move {
        action,
        size: size as u32,
        count,
        src,
        dst,
        parity,
        // The source of a put or an accumulate belongs to this stream, and is borrowed until the epoch is complete. So
        // it can be read before the exposure has come. The source of a get belongs to the target.
        early: note.what != What::Get,
        // A landing is used only if one put fills the whole slot: a partial one would leave the rest of the landing
        // behind.
        landing: edge.landing.filter(|_| {
            let whole = note.first == 0 && note.count == edge.len;
            let linear = note.local_layout.is_none() && note.remote_layout.is_none();
            note.what == What::Put && whole && linear
        }),
        buffers: edge.buffers,
    }
}
