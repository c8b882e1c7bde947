//! A whole job as plain data. The interpreter runs it on the library, and the oracle runs it on vectors.

use tidegate::Op as Reduction;

use super::value::{Ty, mix};

/// A job of some ranks.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) ranks: usize,
    /// The streams of each rank.
    pub(crate) lanes: Vec<Vec<LaneKind>>,
    pub(crate) windows: Vec<Win>,
    /// The regions of each rank. Regions of one index have the same type on all ranks.
    pub(crate) regions: Vec<Vec<Reg>>,
    /// The program of each rank.
    pub(crate) programs: Vec<Vec<Item>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    Thread,
    Inline,
}

/// A window.
#[derive(Clone, Debug)]
pub(crate) struct Win {
    pub(crate) ty: Ty,
    pub(crate) kind: Kind,
    pub(crate) edges: Vec<Edge>,
    /// The elements of each rank's memory (for ranges and atomics).
    pub(crate) memory: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Slots {
        double: bool,
    },
    Ranges,
    /// Each rank's memory has `own` elements for each origin, which no other rank touches, then shared elements,
    /// tickets and locks.
    Atomic {
        own: usize,
    },
}

/// A slot, range, or permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) origin: usize,
    pub(crate) target: usize,
    pub(crate) key: u64,
    /// Its first element at the target, and the distance of its elements: 1 for a range, more for a layout.
    pub(crate) first: usize,
    pub(crate) step: isize,
    pub(crate) len: usize,
}

impl Edge {
    /// The place of an element of it in the target's memory.
    pub(crate) fn element(&self, index: usize) -> usize {
        self.first
            .checked_add_signed(index as isize * self.step)
            .expect("a rank puts within its part")
    }

    /// Its layout, if it is no range.
    pub(crate) fn layout(&self) -> Option<Lay> {
        (self.step != 1).then(|| Lay::Strided {
            first: self.first,
            loops: vec![(self.len as u32, self.step as i32)],
        })
    }
}

/// The number of elements to which several origins accumulate, each with one reduction.
pub(crate) const SHARED: usize = 4;
/// The number of elements from which several origins draw tickets, and of those that they lock.
pub(crate) const CONTESTED: usize = 2;

impl Win {
    pub(crate) fn outbound(&self, rank: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.origin == rank)
    }

    pub(crate) fn inbound(&self, rank: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.target == rank)
    }

    pub(crate) fn origins(&self, rank: usize) -> Vec<usize> {
        sorted(self.inbound(rank).map(|edge| edge.origin))
    }

    pub(crate) fn targets(&self, rank: usize) -> Vec<usize> {
        sorted(self.outbound(rank).map(|edge| edge.target))
    }

    pub(crate) fn double(&self) -> bool {
        self.kind == Kind::Slots { double: true }
    }

    /// The initial contents of a rank's memory.
    pub(crate) fn first_memory(&self, rank: usize) -> Vec<u64> {
        let locks = self.locks();
        let value = |index: usize| {
            if locks.contains(&index) {
                0
            } else {
                self.ty.value(mix(rank as u64 + 77, index as u64))
            }
        };
        (0..self.memory).map(value).collect()
    }

    pub(crate) fn shared(&self) -> usize {
        self.memory - SHARED - 2 * CONTESTED
    }

    pub(crate) fn tickets(&self) -> usize {
        self.memory - 2 * CONTESTED
    }

    /// The elements that origins lock by compare-and-swap, and that the target's kernel frees.
    pub(crate) fn locks(&self) -> std::ops::Range<usize> {
        match self.kind {
            Kind::Atomic { .. } => self.memory - CONTESTED..self.memory,
            _ => 0..0,
        }
    }
}

fn sorted(ranks: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut ranks: Vec<_> = ranks.collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg {
    pub(crate) ty: Ty,
    pub(crate) len: usize,
    pub(crate) role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// For any use as a source or a destination.
    Data,
    /// The checksums of an inbox.
    Sums,
    /// The fetched values, in order. The first element is their number.
    Log,
    /// The values that contested operations fetched, which differ from run to run.
    Fetched,
    /// A fixed value of this rank.
    Mine,
    /// Fixed ones, and zeros.
    Ones,
    Zeros,
    /// The second part of another region, after that was split.
    Rest,
}

impl Reg {
    pub(crate) fn first_value(&self, rank: usize, id: usize, index: usize) -> u64 {
        match self.role {
            Role::Data | Role::Rest => self
                .ty
                .value(mix(mix(rank as u64, id as u64), index as u64)),
            Role::Sums | Role::Log | Role::Fetched | Role::Zeros => 0,
            // It is never zero, whatever the type, since zero means that a lock is free.
            Role::Mine => match self.ty {
                Ty::F64 => (rank as f64 + 3.0).to_bits(),
                _ => rank as u64 + 3,
            },
            Role::Ones => self.ty.one(),
        }
    }
}

/// The numbers of a window's regions. Every window has all of them, so that the numbering is simple.
pub(crate) fn sums(window: usize) -> usize {
    window * PER_WINDOW
}
pub(crate) fn log(window: usize) -> usize {
    window * PER_WINDOW + 1
}
pub(crate) fn tickets(window: usize) -> usize {
    window * PER_WINDOW + 2
}
pub(crate) fn locked(window: usize) -> usize {
    window * PER_WINDOW + 3
}
pub(crate) fn mine(window: usize) -> usize {
    window * PER_WINDOW + 4
}
pub(crate) fn ones(window: usize) -> usize {
    window * PER_WINDOW + 5
}
pub(crate) fn zeros(window: usize) -> usize {
    window * PER_WINDOW + 6
}
/// Regions with as many elements as each origin has for itself: to fetch into, to compare with, and to swap in.
pub(crate) fn own(window: usize, which: usize) -> usize {
    window * PER_WINDOW + 7 + which
}
pub(crate) const PER_WINDOW: usize = 10;

/// An item of a program.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Do(Op),
    /// A repetition of the same operations, in turn eager and replayed, on one stream or two. `graph` is the number of
    /// the recording.
    Loop {
        graph: usize,
        body: Vec<Op>,
        main: usize,
        side: Option<usize>,
        chunks: Vec<Chunk>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Eager(u64),
    Replay(u64),
}

impl Chunk {
    pub(crate) fn times(self) -> u64 {
        match self {
            Chunk::Eager(times) | Chunk::Replay(times) => times,
        }
    }
}

/// One operation, on a stream (or on the one of its first resource).
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) on: Option<usize>,
    pub(crate) what: What,
}

/// Some ranks, or `None` for all.
pub(crate) type Ranks = Option<Vec<usize>>;

#[derive(Clone, Debug)]
pub(crate) enum What {
    Post {
        window: usize,
        group: Ranks,
    },
    /// Post and wait in one call.
    Expose {
        window: usize,
        group: Ranks,
    },
    /// Waits. Before that it polls `polls` times, or until it is over if that is 255.
    Wait {
        window: usize,
        polls: u8,
    },
    Complete {
        window: usize,
        group: Ranks,
        acts: Vec<Act>,
    },
    Exchange {
        window: usize,
        group: Ranks,
        acts: Vec<Act>,
    },
    /// A kernel that changes a region.
    Change {
        region: usize,
        salt: u64,
    },
    /// A kernel that sums up an inbox, and changes its memory if it may.
    Consume {
        window: usize,
        salt: u64,
    },
    /// A kernel that mixes a slot into a region.
    Fold {
        window: usize,
        slot: usize,
        region: usize,
    },
    /// A kernel that appends the fetched values to the log.
    Log {
        window: usize,
        fetched: usize,
    },
    /// The host reads and writes an inbox.
    Read {
        window: usize,
        salt: u64,
    },
    /// To the host, where it is changed, and back.
    Trip {
        region: usize,
        salt: u64,
    },
    Split {
        region: usize,
        at: usize,
        rest: usize,
    },
    Join {
        region: usize,
        rest: usize,
    },
    /// Every `step`-th element goes to another stream for a while.
    Parts {
        region: usize,
        step: usize,
        side: usize,
        salt: u64,
    },
    /// An epoch that puts every `step`-th element, while the others are changed on another stream.
    Surface {
        window: usize,
        group: Ranks,
        acts: Vec<Act>,
        region: usize,
        step: usize,
        side: usize,
        salt: u64,
    },
    /// The region is dropped while work on it is pending, and made again.
    Renew {
        region: usize,
        salt: u64,
    },
    Synchronize,
}

/// One operation of an epoch.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    /// The outbound slot; for an atomic window, the target.
    pub(crate) edge: usize,
    pub(crate) verb: Verb,
    pub(crate) local: usize,
    pub(crate) lay: Lay,
    /// The first element at the target.
    pub(crate) at: usize,
    pub(crate) remote: Lay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Get,
    Accumulate(Reduction),
    Fetch { op: Reduction, into: usize },
    Swap { compare: usize, into: usize },
}

impl Act {
    /// The region that it writes.
    pub(crate) fn writes(&self) -> Option<usize> {
        match self.verb {
            Verb::Get => Some(self.local),
            Verb::Fetch { into, .. } | Verb::Swap { into, .. } => Some(into),
            Verb::Put | Verb::Accumulate(_) => None,
        }
    }

    /// The regions that it reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = usize> {
        let (a, b) = match self.verb {
            Verb::Get => (None, None),
            Verb::Swap { compare, .. } => (Some(self.local), Some(compare)),
            _ => (Some(self.local), None),
        };
        a.into_iter().chain(b)
    }
}

/// Some elements, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lay {
    Whole,
    Run {
        first: usize,
        count: usize,
    },
    Strided {
        first: usize,
        loops: Vec<(u32, i32)>,
    },
    /// `first + i * factor % span`.
    Indexed {
        first: usize,
        count: usize,
        factor: usize,
        span: usize,
    },
}

impl Lay {
    /// The elements, of `len`.
    pub(crate) fn elements(&self, len: usize) -> Vec<usize> {
        match self {
            Lay::Whole => (0..len).collect(),
            Lay::Run { first, count } => (*first..first + count).collect(),
            Lay::Strided { first, loops } => {
                let mut all = vec![*first as i64];
                // The first loop is the fastest, so it is multiplied out last.
                for (count, stride) in loops.iter().rev() {
                    let turn = |from: &i64| {
                        let from = *from;
                        (0..i64::from(*count)).map(move |i| from + i * i64::from(*stride))
                    };
                    all = all.iter().flat_map(turn).collect();
                }
                all.into_iter().map(|index| index as usize).collect()
            }
            Lay::Indexed {
                first,
                count,
                factor,
                span,
            } => (0..*count).map(|i| first + i * factor % span).collect(),
        }
    }
}

/// What an operation needs, besides its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Res {
    Region(usize),
    /// The inbox, exposed or not.
    Inbox(usize),
    Outbox(usize),
}

impl What {
    pub(crate) fn needs(&self) -> Vec<Res> {
        use Res::{Inbox, Outbox, Region};
        let of_acts = |acts: &[Act]| {
            let all = acts.iter().flat_map(|act| act.reads().chain(act.writes()));
            all.map(Region).collect::<Vec<_>>()
        };
        let mut needs = match self {
            What::Post { window, .. }
            | What::Expose { window, .. }
            | What::Wait { window, .. }
            | What::Read { window, .. } => vec![Inbox(*window)],
            What::Complete { window, acts, .. } => [vec![Outbox(*window)], of_acts(acts)].concat(),
            What::Exchange { window, acts, .. } => {
                [vec![Outbox(*window), Inbox(*window)], of_acts(acts)].concat()
            }
            What::Change { region, .. }
            | What::Trip { region, .. }
            | What::Split { region, .. }
            | What::Parts { region, .. }
            | What::Renew { region, .. } => vec![Region(*region)],
            What::Surface { window, region, .. } => vec![Outbox(*window), Region(*region)],
            What::Consume { window, .. } => {
                vec![Inbox(*window), Region(sums(*window)), Region(log(*window))]
            }
            What::Fold { window, region, .. } => vec![Inbox(*window), Region(*region)],
            What::Log { window, fetched } => vec![Region(log(*window)), Region(*fetched)],
            What::Join { region, rest } => vec![Region(*region), Region(*rest)],
            What::Synchronize => vec![],
        };
        let mut seen = std::collections::HashSet::new();
        needs.retain(|need| seen.insert(*need));
        needs
    }
}
