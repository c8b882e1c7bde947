//! What an outbox has so that kernels put by themselves: the table that they see, and the batches around them.
//!
//! # Model
//!
//! [`Outbox::open`](super::Outbox::open) enqueues a batch with a lane for each target: it waits for the target's
//! exposure, and then gives the [`Grant`]. Kernels behind it find the table in memory of the device. They look at the
//! grant of a slot's target before they store to the slot, or to its staging. Then
//! [`Opened::complete`](super::Opened::complete) enqueues a batch that ends each grant and adds to the target's word.
//! For a target that a kernel completes, this batch checks that the kernel has done so.
//!
//! A kernel of a host stream that breaks a rule panics. A kernel of a GPU cannot: it records the fault in the head of the
//! table, and puts nothing. The batch that completes looks there first, and fails.
//!
//! Both batches are always the same, so recordings contain them as they are. A stream that has failed poisons the words
//! of the grants, as it poisons those of the targets. So kernels behind it store nothing to a target that has not posted.
//! A kernel of a GPU may run on a failed stream before its next batch poisons the grants. So before it completes a
//! target, it looks at the stream's own word for failures ([`Reports::stop`](tidegate_hal::device::Reports::stop)).
//!
//! Nobody knows which elements kernels put. So all slots of a far target are sent from their staging, which has the
//! same contents as the target's slots: everything goes through it.
//!
//! # Failure
//!
//! If kernels cannot reach a target at all, the first `open` is refused, before anything is enqueued.

use std::sync::Arc;

use tidegate_hal::batch::{Add, Awaited, Batch, Check, QUANTUM, Step, Tag, Wait};
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::Keep;
use tidegate_words::Grant;

use super::edge::Edge;
use super::note::{Lanes, Note, What};
use super::programs::programs;
use super::stages::stages;
use super::{Half, Kind, Link};
use crate::bytes::{bytes_of, no_padding};
use crate::error::{EpochError, Result};
use crate::stream::Arm;

/// How many different completes an outbox remembers.
const COMPLETES: usize = 8;

/// The head of the table, as kernels of GPUs find it. The targets follow, and then the slots.
#[repr(C, align(64))]
struct Head {
    /// The first fault of a kernel: see [`PutFault`](crate::error::PutFault). 0 if there is none.
    fault: u64,
}

/// A target, as kernels of any device read it, in a cache line of its own. It is written with numbers in place of the
/// grant's words.
#[repr(C, align(64))]
pub(super) struct Cell<G = Grant> {
    pub(super) grant: G,
    /// The target's word, which a kernel adds to that completes the target. 0 if kernels cannot.
    pub(super) done: Ptr,
    /// In its upper half, the number of blocks of a kernel that have completed the target, until the last one has. (So
    /// as a fault it is [`PutFault::CompletedTwice`](crate::error::PutFault).)
    arrived: u64,
    /// The target's bell, for kernels of host streams.
    pub(super) bell: Ptr,
    unused: [u64; 2],
}

/// An outbound slot, as kernels of any device read it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct OutEntry {
    /// The slot's memory, or its staging.
    pub(super) base: Ptr,
    /// The number of elements.
    pub(super) len: u64,
    /// The distance in bytes from the buffer of even epochs to that of odd ones, or 0 if there is one buffer.
    pub(super) flip: u64,
    /// The operand of the wait for the target's exposure. It counts the epochs.
    pub(super) operand: Ptr,
    /// The grant of the slot's target.
    pub(super) grant: Ptr,
}

/// The inbox and its group, and the targets that kernels complete.
pub(super) type ExchangeKey = ((u64, u64), Vec<usize>);

/// The table, and the batches.
pub(super) struct Grants<D: Device> {
    block: Arc<D::Block>,
    slots: usize,
    targets: usize,
    pub(super) open: Arc<Batch>,
    /// The programs of far targets, which a complete fires.
    pub(super) arms: Vec<Arm<D>>,
    /// The batches of completes, each with the targets that kernels complete.
    completes: Vec<(Vec<usize>, Arc<Batch>)>,
    /// The last batch that is a complete and the post and the wait of an inbox, with both keys.
    pub(super) exchange: Option<(ExchangeKey, Arc<Batch>)>,
    /// For each target, what a kernel that completes it does, for proofs of recordings.
    by_kernels: Vec<Option<Arc<Batch>>>,
    /// For each target, into how many parts its staged data is cut.
    parts: Vec<usize>,
}

// `kernels/tidegate.cuh` states the same.
const _: () = {
    assert!(size_of::<Head>() == 64 && size_of::<Cell>() == 64 && size_of::<OutEntry>() == 40);
    assert!(std::mem::offset_of!(Grant, given) == 0 && std::mem::offset_of!(Grant, check) == 8);
    assert!(size_of::<Grant>() == 24 && std::mem::offset_of!(Cell, grant) == 0);
    assert!(std::mem::offset_of!(Cell, done) == 24 && std::mem::offset_of!(Cell, arrived) == 32);
};

no_padding!(Cell<[u64; 3]>: grant done arrived bell unused);
no_padding!(OutEntry: base len flip operand grant);

/// Where the cell of a target lies in the block.
fn cell(block: Ptr, lane: usize) -> Ptr {
    block.byte_add(size_of::<Head>() + lane * size_of::<Cell>())
}

impl<D: Device> Grants<D> {
    pub(super) fn new(half: &Half<D>, edges: &[Edge], kind: Kind) -> Result<Self> {
        let device = half.world.device();
        for edge in edges {
            let reason = if edge.by_nic && kind == Kind::Range {
                "a NIC reaches it, and a kernel's access to a range is not staged; complete an epoch of `Outbox::start`"
            } else if edge.layout.is_some() {
                "its elements were declared as a layout; complete an epoch of `Outbox::start`, or declare ranges"
            } else if edge.is_direct() {
                "a NIC reads what it sends from the program's own regions; make the world with `WorldOptions::staged`"
            } else if !edge.by_nic && !device.reaches(edge.base) {
                "it is reached by MPI's windows only; complete an epoch of `Outbox::start`"
            } else {
                continue;
            };
            return Err(EpochError::NotByKernels {
                window: half.window.named(),
                rank: half.peers[edge.lane].rank,
                what: if kind == Kind::Range {
                    "reach"
                } else {
                    "put to"
                },
                reason,
            }
            .into());
        }
        let targets = half.peers.len();
        // (The cells are followed by the entries.)
        let bytes =
            size_of::<Head>() + targets * size_of::<Cell>() + edges.len() * size_of::<OutEntry>();
        let block = device.alloc(bytes, Sharing::Private)?;
        let grant = |lane: usize| cell(block.base(), lane);
        let cells: Vec<_> = half.peers.iter().map(Cell::of).collect();
        // SAFETY: the cells lie in the block, which nothing else knows yet. Its other words are zero.
        unsafe { device.write(grant(0), bytes_of(&cells)) }?;
        let entries = edges.iter().map(|edge| {
            let (base, flip) = match edge.staging {
                Some(staging) => (staging.base, staging.flip),
                None => (edge.base, edge.flip),
            };
            OutEntry {
                base,
                len: edge.len as u64,
                flip: flip as u64,
                operand: half.peers[edge.lane].operand,
                grant: grant(edge.lane),
            }
        });
        let entries: Vec<_> = entries.collect();
        // SAFETY: the entries lie in the block behind the grants, and nothing else knows them yet.
        unsafe { device.write(grant(targets), bytes_of(&entries)) }?;

        // A far target gets all of its slots.
        let staged = (0..).zip(edges).filter_map(|(number, edge)| {
            let staging = edge.staging?;
            Some(Note {
                what: What::Put,
                edge: number,
                first: 0,
                count: edge.len,
                local: (staging.base, 0),
                local_layout: None,
                remote_layout: None,
            })
        });
        let notes: Vec<Note<D>> = staged.collect();
        let lanes = Lanes::of(targets, edges, &notes);
        let members: Vec<_> = (0..targets).collect();
        let arms = programs(half, edges, &members, &lanes, &[])?;
        let size = half.window.element_size;
        let parts = half
            .peers
            .iter()
            .zip(0..)
            .map(|(peer, lane)| match &peer.link {
                Link::Mapped { .. } => 0,
                Link::Nic(line) => {
                    stages(lanes.notes(lane), size, line.chunks(half.world.chunks())).len()
                }
            });
        let parts = parts.collect();
        let block = Arc::new(block);
        let open = open(half, &block);
        Ok(Grants {
            open: Arc::new(open),
            block,
            slots: edges.len(),
            targets,
            arms,
            completes: Vec::new(),
            exchange: None,
            by_kernels: (0..targets).map(|lane| by_kernel(half, lane)).collect(),
            parts,
        })
    }

    /// The batch that completes all targets but those that kernels complete.
    pub(super) fn complete(&mut self, half: &Half<D>, by_kernels: &[usize]) -> Arc<Batch> {
        if let Some((_, batch)) = self.completes.iter().find(|(by, _)| by == by_kernels) {
            return batch.clone();
        }
        let batch = Arc::new(complete(half, &self.block, &self.parts, by_kernels));
        if self.completes.len() == COMPLETES {
            // The queue keeps the batch if some of its work is still to be carried out.
            self.completes.remove(0);
        }
        self.completes.push((by_kernels.to_vec(), batch.clone()));
        batch
    }
}

impl Cell<[u64; 3]> {
    fn of(peer: &super::Peer) -> Self {
        let (done, bell) = match peer.link {
            Link::Mapped { word, bell } => (word, bell),
            Link::Nic(_) => (Ptr::NULL, Ptr::NULL),
        };
        Cell {
            grant: [0, Grant::CHECK, 0],
            done,
            arrived: 0,
            bell,
            unused: [0; 2],
        }
    }
}

/// Where the table lies, and what it has.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The head.
    pub(super) head: Ptr,
    pub(super) slots: usize,
    pub(super) targets: usize,
}

impl Place {
    /// The address of the entries.
    pub(super) fn entries(self) -> Ptr {
        cell(self.head, self.targets)
    }

    /// The address of a target's cell.
    pub(super) fn cell(self, lane: usize) -> Ptr {
        cell(self.head, lane)
    }
}

impl<D: Device> Grants<D> {
    pub(super) fn place(&self) -> Place {
        Place {
            head: self.block.base(),
            slots: self.slots,
            targets: self.targets,
        }
    }

    /// What a kernel that completes a mapped target does.
    pub(super) fn by_kernel(&self, lane: usize) -> &Arc<Batch> {
        let batch = self.by_kernels[lane].as_ref();
        batch.expect("kernels complete mapped targets only")
    }
}

fn tag<D: Device>(half: &Half<D>, lane: usize, awaited: Awaited) -> Tag {
    Tag {
        window: Some(half.window.id),
        peer: half.peers[lane].rank as u32,
        awaited,
    }
}

/// An add to the word *given* of a grant. It names this rank's own bell, because a stream that has failed poisons only
/// words that have a bell.
fn give<D: Device>(half: &Half<D>, grant: Ptr, value: u64) -> Step {
    let own = half.world.bell(half.world.rank());
    Step::Add(Add {
        word: grant.byte_add(std::mem::offset_of!(Grant, given)),
        value,
        bell: own.expect("a rank has a bell of its own"),
        tag: None,
        turn: None,
    })
}

fn open<D: Device>(half: &Half<D>, block: &Arc<D::Block>) -> Batch {
    let lane = |(lane, peer): (usize, &super::Peer)| {
        let tag = tag(half, lane, Awaited::Exposure);
        let mut steps = Vec::new();
        if let Link::Nic(line) = &peer.link
            && !half.world.ignores_tickets()
        {
            steps.push(line.wait_for_buffer(peer.buffers, tag));
        }
        steps.push(Step::Wait(Wait {
            word: peer.word,
            operand: peer.operand,
            quantum: QUANTUM,
            tag,
            landed: None,
            ring: None,
        }));
        steps.push(give(half, cell(block.base(), lane), QUANTUM));
        steps
    };
    let lanes = half.peers.iter().enumerate().map(lane);
    // SAFETY: the words of the peers lie in blocks that the half holds, and those of the grants in the block that the
    // batch keeps. Only this half's stream adds to those, by batches and by the kernels in between.
    unsafe { Batch::new(lanes, vec![block.clone() as Keep]) }
}

/// What a kernel does that completes a target. It is never submitted.
fn by_kernel<D: Device>(half: &Half<D>, lane: usize) -> Option<Arc<Batch>> {
    let Link::Mapped { word, bell } = half.peers[lane].link else {
        return None;
    };
    let add = Step::Add(Add {
        word,
        value: QUANTUM,
        bell,
        tag: Some(tag(half, lane, Awaited::Completion)),
        turn: None,
    });
    // SAFETY: the word and the bell lie in blocks that the half holds.
    Some(Arc::new(unsafe { Batch::new([vec![add]], Vec::new()) }))
}

fn complete<D: Device>(
    half: &Half<D>,
    block: &Arc<D::Block>,
    parts: &[usize],
    by_kernels: &[usize],
) -> Batch {
    let lane = |(lane, peer): (usize, &super::Peer)| {
        let grant = cell(block.base(), lane);
        let told = tag(half, lane, Awaited::Completion);
        let done = |value, tag| match &peer.link {
            Link::Mapped { word, bell } => Step::Add(Add {
                word: *word,
                value,
                bell: *bell,
                tag,
                turn: None,
            }),
            Link::Nic(_) => unreachable!("a mapped peer"),
        };
        let none = |count: Ptr| {
            Step::Check(Check {
                count,
                most: 0,
                tag: tag(half, lane, Awaited::Kernel),
            })
        };
        // The head begins with the fault.
        let fault = none(block.base());
        if by_kernels.contains(&lane) {
            let check = Wait {
                word: grant.byte_add(std::mem::offset_of!(Grant, check)),
                operand: grant.byte_add(std::mem::offset_of!(Grant, passed)),
                quantum: QUANTUM,
                tag: tag(half, lane, Awaited::Kernel),
                landed: None,
                ring: None,
            };
            // Both adds add nothing. If the kernel has not completed the target, they poison their words.
            return vec![
                fault,
                Step::Wait(check),
                // Otherwise the next kernel would begin to count there.
                none(grant.byte_add(std::mem::offset_of!(Cell, arrived))),
                give(half, grant, 0),
                done(0, None),
            ];
        }
        let mut steps = vec![fault, give(half, grant, QUANTUM), Step::Flush];
        match &peer.link {
            Link::Mapped { .. } => steps.push(done(QUANTUM, Some(told))),
            Link::Nic(line) => match parts[lane] {
                1 => steps.extend(line.ring(told)),
                parts => steps.extend((0..parts).map(|part| line.ring_part(part, parts, told))),
            },
        }
        steps
    };
    let lanes = half.peers.iter().enumerate().map(lane);
    let by_nic = |peer: &super::Peer| matches!(peer.link, Link::Nic(_));
    let helped = half.peers.iter().any(by_nic);
    // SAFETY: as for the batch that opens. What a kernel has stored comes before these adds, in stream order.
    let batch = unsafe { Batch::new(lanes, vec![block.clone() as Keep]) };
    batch.helped(helped)
}
