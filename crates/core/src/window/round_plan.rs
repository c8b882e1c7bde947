//! What the rounds of a collective do, before they are batches.

use std::ops::Range;

use tidegate_hal::batch::{Op, Scalar};
use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;

use crate::region::RegionBody;

/// What a round does. Numbers of slots count the slots in the order of their declaration.
pub(crate) struct RoundPlan<'b, D: Device> {
    pub(crate) puts: Vec<Put<'b, D>>,
    /// What others put to this rank.
    pub(crate) receives: Vec<Receive>,
    /// Lanes of moves between buffers.
    pub(crate) beside: Vec<Vec<LocalMove<'b, D>>>,
    /// Lanes of moves when all origins have put, and the lanes beside are over.
    pub(crate) behind: Vec<Vec<LocalMove<'b, D>>>,
}

/// A run of elements of a region.
pub(crate) struct Run<'b, D: Device> {
    pub(crate) region: &'b RegionBody<D>,
    /// The offset of the first element, in bytes.
    pub(crate) offset: usize,
}

impl<D: Device> Clone for Run<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Device> Copy for Run<'_, D> {}

impl<D: Device> Run<'_, D> {
    pub(super) fn at(self) -> Ptr {
        self.region.ptr().byte_add(self.offset)
    }

    pub(super) fn addresses(self, bytes: usize) -> Range<usize> {
        let first = self.at().0.addr();
        first..first + bytes
    }
}

/// A put of elements to the beginning of a slot.
pub(crate) struct Put<'b, D: Device> {
    pub(crate) what: Putting<'b, D>,
    pub(crate) slot: usize,
    pub(crate) from: Run<'b, D>,
    pub(crate) count: usize,
}

/// A put of another rank, which it has like this, too.
pub(crate) struct Receive {
    pub(crate) rank: usize,
    pub(crate) slot: usize,
    pub(crate) count: usize,
}

/// How many of its elements a put sends.
pub(crate) enum Putting<'b, D: Device> {
    All,
    /// As many rows of `size` bytes as the number says that lies there.
    Rows {
        count: Run<'b, D>,
        size: usize,
    },
    /// All, which are a number of 8 bytes. The stream fails if it is greater than this.
    Number(u64),
}

/// Where a local move reads.
pub(crate) enum Origin<'b, D: Device> {
    Run(Run<'b, D>),
    /// A slot of the inbox: its rank, its number, and the offset in bytes.
    Slot(usize, usize, usize),
}

/// What a local move does.
pub(crate) enum LocalAction<'b, D: Device> {
    Copy,
    /// Reduces the destination, which has `parts` numbers in each element. Its value comes first, or the new one does if
    /// that stands `before` it.
    Reduce {
        op: Op,
        scalar: Scalar,
        parts: usize,
        before: bool,
    },
    /// Copies as many rows of `size` bytes as the number says that lies there.
    CopyRows {
        count: Origin<'b, D>,
        size: usize,
    },
    /// Copies a number of 8 bytes. The stream fails if it is greater than this.
    CopyNumber(u64),
}

/// A move within this rank.
pub(crate) struct LocalMove<'b, D: Device> {
    pub(crate) action: LocalAction<'b, D>,
    pub(crate) from: Origin<'b, D>,
    pub(crate) to: Run<'b, D>,
    pub(crate) count: usize,
}

impl<D: Device> LocalMove<'_, D> {
    /// The addresses that the move reads, slots aside.
    fn reads(&self, size: usize) -> Option<Range<usize>> {
        match self.from {
            Origin::Run(run) => Some(run.addresses(self.count * size)),
            Origin::Slot(..) => None,
        }
    }

    fn writes(&self, size: usize) -> Range<usize> {
        self.to.addresses(self.count * size)
    }
}

/// The origin whose slots alone a lane of moves reads.
pub(super) fn only_origin<D: Device>(lane: &[LocalMove<'_, D>]) -> Option<usize> {
    let mut origins = lane.iter().filter_map(|one| match one.from {
        Origin::Slot(rank, ..) => Some(rank),
        Origin::Run(_) => None,
    });
    let rank = origins.next()?;
    origins.all(|other| other == rank).then_some(rank)
}

/// Whether a lane of moves touches nothing that the puts of a plan and its lanes beside use.
pub(super) fn is_apart<D: Device>(
    plan: &RoundPlan<'_, D>,
    lane: &[LocalMove<'_, D>],
    size: usize,
) -> bool {
    let meets = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    let sources = plan
        .puts
        .iter()
        .map(|put| put.from.addresses(put.count * size));
    let beside = || plan.beside.iter().flatten();
    let reads = beside().filter_map(|one| one.reads(size));
    let written: Vec<_> = beside().map(|one| one.writes(size)).collect();
    let used: Vec<_> = sources
        .chain(reads)
        .chain(written.iter().cloned())
        .collect();
    lane.iter().all(|one| {
        let to = one.writes(size);
        let from = one.reads(size);
        used.iter().all(|other| !meets(&to, other))
            && from.is_none_or(|from| written.iter().all(|other| !meets(&from, other)))
    })
}
