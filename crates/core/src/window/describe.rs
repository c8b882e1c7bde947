//! What a rank declares of a window, and what it tells others of that when the window is opened.
//!
//! # Model
//!
//! A rank keeps its [`Description`] for itself. It tells all ranks its [`Terms`], which must be the same everywhere, and
//! each neighbour the [`Part`] that concerns the neighbour. So the messages of a rank grow with its neighbours, and not
//! with the number of ranks.

use serde::{Deserialize, Serialize};
use tidegate_hal::process::memory::Readable;

use super::Kind;
use super::joint::Joint;
use crate::error::Disagreement;
use crate::footprint::Footprint;
use crate::layout::Order;
use crate::world::Roster;

/// Slots begin at multiples of this, so that no two origins write to one cache line.
pub(super) const SLOT_ALIGN: usize = 64;

/// What one rank has declared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Description {
    pub(super) terms: Terms,
    /// How many elements of memory this rank has, in windows by range and atomic windows.
    pub(super) memory: usize,
    pub(super) inbound: Vec<Inbound>,
    pub(super) outbound: Vec<Outbound>,
    /// If data is staged, the ranks that this one reaches by its NIC, in ascending order.
    pub(super) far: Vec<usize>,
    /// The largest slot, in bytes, for which the device uses a landing.
    pub(super) land_up_to: usize,
    /// The ranks whose slots are rings if they agree, in ascending order.
    pub(super) rings: Vec<usize>,
    /// This process, if neighbours may read its memory.
    pub(super) readable: Option<Readable>,
    /// Whether the rank is alone because its process was started without a job.
    pub(super) started_alone: bool,
}

/// What must be the same on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Terms {
    pub(super) kind: Kind,
    pub(super) layout: u64,
    pub(super) size: usize,
    pub(super) purpose: Purpose,
    pub(super) buffers: u32,
    /// How many epochs the window counts as having had.
    pub(super) before: u64,
    /// Whether data that goes through NICs is staged.
    pub(super) staged: bool,
    /// The name of the element type, for messages. The ranks compare the type's layout and size instead.
    pub(super) element: String,
}

impl Terms {
    /// The bytes that the ranks compare, and those that they do not.
    pub(super) fn encoded(&self) -> (Vec<u8>, Vec<u8>) {
        let compared = Terms {
            element: String::new(),
            ..self.clone()
        };
        let encoded = |terms| postcard::to_stdvec(terms).expect("plain data can be encoded");
        (encoded(&compared), self.element.clone().into_bytes())
    }

    /// The terms in both kinds of bytes, one behind the other.
    pub(super) fn decoded(bytes: &[u8]) -> Result<Self, postcard::Error> {
        let (terms, element) = postcard::take_from_bytes(bytes)?;
        let element = String::from_utf8_lossy(element).into_owned();
        Ok(Terms { element, ..terms })
    }
}

/// What a rank tells a neighbour: the part of its description that concerns the neighbour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// What it puts to the neighbour.
    pub(super) outbound: Vec<PartOut>,
    /// Its slots for the neighbour, by key and length.
    pub(super) inbound: Vec<(u64, usize)>,
    /// Whether it reaches the neighbour by its NIC, through staged memory.
    pub(super) far: bool,
    pub(super) land_up_to: usize,
    /// Whether it would use rings with the neighbour.
    pub(super) ring: bool,
    /// Its process, if the neighbour may read its memory.
    pub(super) readable: Option<Readable>,
}

/// [`Outbound`], to a neighbour that knows who it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PartOut {
    pub(super) key: u64,
    pub(super) elements: Footprint,
    pub(super) order: Option<Order>,
}

/// The use of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// The program declared it.
    Program,
    /// A collective that moves data.
    Collective(Joint),
    Barrier,
}

impl Purpose {
    /// The label of the exchange that opens such a window.
    pub(super) fn label(self) -> &'static str {
        match self {
            Purpose::Barrier => "opening a barrier",
            _ => "opening a window",
        }
    }

    /// The name of the call that opens one, for messages.
    pub(super) fn opening(self) -> &'static str {
        match self {
            Purpose::Barrier => "opening barrier",
            _ => "opening window",
        }
    }
}

/// The rounds of a barrier of `ranks` ranks. In each round a rank signals the one that is so many ranks further on.
pub(crate) fn rounds(ranks: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |step| Some(2 * step)).take_while(move |step| *step < ranks)
}

/// A slot for an origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inbound {
    pub(super) origin: usize,
    pub(super) key: u64,
    pub(super) len: usize,
}

/// What a rank puts to: a slot with a key, or elements of a target's memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outbound {
    pub(super) target: usize,
    pub(super) key: u64,
    /// In a window by range, the elements.
    pub(super) elements: Footprint,
    /// Their order, if they are a layout. A target by staged memory keeps a copy of them in this order.
    pub(super) order: Option<Order>,
    /// The expected number of elements in the slot, if this rank has said it.
    pub(super) expected: Option<usize>,
}

impl Description {
    /// Adds the slots that follow from the [`Purpose`], in a team of `ranks` ranks: in each round of a barrier, a rank
    /// has an empty inbound slot from the rank that signals it, and an outbound slot to the rank that it signals.
    pub(super) fn fill_in(&mut self, rank: usize, ranks: usize) {
        let slot = |origin| Inbound {
            origin,
            key: 0,
            len: 0,
        };
        let to = |target| Outbound {
            target,
            key: 0,
            elements: Footprint::Range(0..0),
            order: None,
            expected: None,
        };
        match self.terms.purpose {
            Purpose::Program | Purpose::Collective(_) => {}
            Purpose::Barrier => {
                let origins = rounds(ranks).map(|step| (rank + ranks - step) % ranks);
                self.inbound = origins.map(slot).collect();
                let targets = rounds(ranks).map(|step| (rank + step) % ranks);
                self.outbound = targets.map(to).collect();
            }
        }
    }

    /// Replaces the numbers that ranks have in the team by those that they have in the job.
    pub(super) fn in_job(&mut self, roster: &Roster) -> Result<(), Disagreement> {
        let targets = self.outbound.iter_mut().map(|out| &mut out.target);
        let origins = self.inbound.iter_mut().map(|slot| &mut slot.origin);
        let mut missing: Option<usize> = None;
        for rank in targets.chain(origins) {
            match roster.members.in_job(*rank) {
                Some(in_job) => *rank = in_job,
                None => missing = missing.max(Some(*rank)),
            }
        }
        let Some(named) = missing else { return Ok(()) };
        let team = &roster.name;
        Err(Disagreement::NoSuchRank {
            rank: roster.members.in_job(roster.rank).unwrap_or_default(),
            named,
            size: roster.size(),
            team: (!team.is_empty()).then(|| team.to_string()),
            alone: self.started_alone,
        })
    }

    /// The ranks that this one puts to or gets puts from, in ascending order.
    pub(super) fn neighbours(&self) -> Vec<usize> {
        let targets = self.outbound.iter().map(|out| out.target);
        sorted(targets.chain(self.inbound.iter().map(|slot| slot.origin)))
    }

    /// How many exposures every origin has from the beginning, when its buffers are free.
    pub(super) fn exposed_at_first(&self) -> u64 {
        u64::from(self.terms.kind == Kind::Slot && self.terms.buffers == 2)
    }

    /// The byte offset of each inbound slot within one buffer of its block (near or far), and the size of one buffer of
    /// each block. Slots of a ring have offsets among themselves, from 0 on.
    pub(super) fn slots(
        &self,
        far: impl Fn(usize) -> bool,
        ring: impl Fn(usize) -> bool,
    ) -> Option<(Vec<usize>, [usize; 2])> {
        if self.terms.kind != Kind::Slot {
            let bytes = self
                .memory
                .checked_mul(self.terms.size)?
                .checked_next_multiple_of(SLOT_ALIGN)?;
            return Some((Vec::new(), [bytes, 0]));
        }
        let mut ends = [0usize; 2];
        let mut offsets = Vec::with_capacity(self.inbound.len());
        // Few origins have several slots, and these come one after the other.
        let mut in_ring = (usize::MAX, 0);
        for slot in &self.inbound {
            if ring(slot.origin) {
                if in_ring.0 != slot.origin {
                    in_ring = (slot.origin, 0);
                }
                offsets.push(in_ring.1);
                in_ring.1 = room(in_ring.1, slot.len, self.terms.size)?;
                continue;
            }
            let end = &mut ends[usize::from(far(slot.origin))];
            offsets.push(*end);
            *end = room(*end, slot.len, self.terms.size)?;
        }
        Some((offsets, ends))
    }
}

/// The offset at which the next slot begins, if `len` elements of `size` bytes begin at `from`.
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
