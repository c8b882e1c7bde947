//! What each rank says about a window when it is created.

use serde::{Deserialize, Serialize};

use super::Kind;
use crate::footprint::Footprint;

/// Slots begin at multiples of this, so that no two origins write to one cache line.
pub(super) const SLOT_ALIGN: usize = 64;

/// One rank's description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The element type's name, for people: what is compared is its layout.
    pub(super) element: String,
    pub(super) layout: u64,
    pub(super) size: usize,
    pub(super) kind: Kind,
    pub(super) buffers: u32,
    /// Elements of memory (ranges and atomics).
    pub(super) memory: usize,
    pub(super) purpose: Purpose,
    pub(super) inbound: Vec<Inbound>,
    pub(super) outbound: Vec<Outbound>,
    /// Whether what goes by NICs is staged.
    pub(super) staged: bool,
    /// The ranks that this one reaches by its NIC, if it is staged.
    pub(super) far: Vec<usize>,
    /// Bytes of slots up to which its device makes something of landings.
    pub(super) land_up_to: usize,
    /// Whether the rank is alone because its process was started without a job: see [`check`](super::check::check).
    pub(super) started_alone: bool,
    /// How many epochs it counts as having had.
    pub(super) before: u64,
}

/// What a window is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// The program's own use.
    Program,
    /// An all-reduce of vectors of so many elements.
    AllReduce {
        len: usize,
    },
    Barrier,
}

impl Purpose {
    /// The label of the exchange that begins its creation.
    pub(super) fn label(self) -> &'static str {
        match self {
            Purpose::Barrier => "opening a barrier",
            _ => "opening a window",
        }
    }

    /// What is done when one is created, for people.
    pub(super) fn opening(self) -> &'static str {
        match self {
            Purpose::Barrier => "opening barrier",
            _ => "opening window",
        }
    }
}

/// The rounds of a barrier of so many ranks: how much further on the rank is that is told.
pub(crate) fn rounds(ranks: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |step| Some(2 * step)).take_while(move |step| *step < ranks)
}

/// A slot for an origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Inbound {
    pub(super) origin: usize,
    pub(super) key: u64,
    pub(super) len: usize,
}

/// A way to a target: a slot by its key, or elements of its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outbound {
    pub(super) target: usize,
    pub(super) key: u64,
    /// Of a window by range: which elements.
    pub(super) elements: Footprint,
    /// How many elements the slot is expected to have, if this rank has said so.
    pub(super) expected: Option<usize>,
}

impl Description {
    /// As it is sent: where the purpose says what the slots are, without them. What all ranks of an all-reduce would tell
    /// all of them would grow with the cube of their number.
    pub(super) fn in_short(&self) -> Self {
        let mut short = self.clone();
        if short.purpose != Purpose::Program {
            (short.inbound, short.outbound) = Default::default();
        }
        short
    }

    /// What a rank [sent in short](Self::in_short), in a job of so many ranks. For an all-reduce that is a slot from each
    /// rank, and a way to each; for a barrier a slot of no elements from the rank that tells this one in each round, and a
    /// way to the one that it tells.
    pub(super) fn in_full(mut self, rank: usize, ranks: usize) -> Self {
        let slot = |(origin, len)| Inbound {
            origin,
            key: 0,
            len,
        };
        let way = |target| Outbound {
            target,
            key: 0,
            elements: Footprint::Range(0..0),
            expected: None,
        };
        match self.purpose {
            Purpose::Program => {}
            Purpose::AllReduce { len } => {
                self.inbound = (0..ranks).map(|origin| slot((origin, len))).collect();
                self.outbound = (0..ranks).map(way).collect();
            }
            Purpose::Barrier => {
                let origins = rounds(ranks).map(|step| (rank + ranks - step) % ranks);
                self.inbound = origins.map(|origin| slot((origin, 0))).collect();
                let targets = rounds(ranks).map(|step| (rank + step) % ranks);
                self.outbound = targets.map(way).collect();
            }
        }
        self
    }

    /// The ranks that this one puts to or gets puts from, ascending.
    pub(super) fn neighbours(&self) -> Vec<usize> {
        let targets = self.outbound.iter().map(|out| out.target);
        sorted(targets.chain(self.inbound.iter().map(|slot| slot.origin)))
    }

    /// The ranks that this one puts to, ascending.
    pub(super) fn targets(&self) -> Vec<usize> {
        sorted(self.outbound.iter().map(|out| out.target))
    }

    /// The byte offset of each inbound slot within one buffer of its block (near or far), and the bytes of a buffer of each.
    pub(super) fn slots(&self, far: impl Fn(usize) -> bool) -> Option<(Vec<usize>, [usize; 2])> {
        if self.kind != Kind::Slot {
            let bytes = self
                .memory
                .checked_mul(self.size)?
                .checked_next_multiple_of(SLOT_ALIGN)?;
            return Some((Vec::new(), [bytes, 0]));
        }
        let mut ends = [0usize; 2];
        let mut offsets = Vec::with_capacity(self.inbound.len());
        for slot in &self.inbound {
            let end = &mut ends[usize::from(far(slot.origin))];
            offsets.push(*end);
            *end = room(*end, slot.len, self.size)?;
        }
        Some((offsets, ends))
    }
}

/// Where the next one begins, when `len` elements of `size` bytes begin at `from`.
pub(super) fn room(from: usize, len: usize, size: usize) -> Option<usize> {
    from.checked_add(len.checked_mul(size)?)?
        .checked_next_multiple_of(SLOT_ALIGN)
}

fn sorted(ranks: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut ranks: Vec<_> = ranks.collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
