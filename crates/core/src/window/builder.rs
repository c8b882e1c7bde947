//! Creating windows.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_hal::batch::{Awaited, QUANTUM, Tag};
use tidegate_hal::control::Packet;
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::memory::{Block as _, Ptr, Sharing};

use super::describe::{Description, Inbound, Outbound, check, origins};
use super::inbox::InboxBody;
use super::outbox::{Edge, OutboxBody};
use super::routes::{Own, Routes};
use super::view::{SlotEntry, Table};
use super::{
    Atomic, ByRange, BySlot, Discipline, Half, Inbox, Kind, Myself, Outbox, Peer, Reach, Way,
    home_number,
};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nic::{Line, LineParts, Throttle};
use crate::region::fresh_id;
use crate::stream::Stream;
use crate::world::Watched;

/// Bytes of a word with its operand: a cache line, since different peers add to neighbouring words.
const CELL: usize = 64;

/// How many buffers a window by slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// One: a complete waits for the post of the same epoch.
    Single = 1,
    /// Two, used by turns: a complete waits for the post of the epoch before, which is nearly always there already.
    Double = 2,
}

/// The declaration of a window, before it is created. All ranks create their windows in the same order.
///
/// `T` is the element type, `K` the [discipline](crate::window#disciplines).
#[derive(Clone, Debug)]
pub struct Window<T, K> {
    description: Description,
    limit: Option<Duration>,
    throttle: Throttle,
    marker: PhantomData<fn(T, K)>,
}

impl<T: Element, K: Discipline> Window<T, K> {
    fn declare(name: &str, buffers: Buffers, memory: usize) -> Self {
        let description = Description {
            name: name.to_owned(),
            layout: T::LAYOUT,
            size: size_of::<T>(),
            kind: K::KIND,
            buffers: buffers as u32,
            memory,
            inbound: Vec::new(),
            outbound: Vec::new(),
        };
        Window {
            description,
            limit: None,
            throttle: Throttle::default(),
            marker: PhantomData,
        }
    }

    /// Makes a wait of this window fail (and with it the window, on all ranks) when it has lasted so long. Without it,
    /// waits last as long as the peers live.
    #[must_use]
    pub fn fail_after(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// What epochs of this window do where a NIC has not got enough trigger slots ([`Throttle::Adaptive`] at first). Each rank may choose for itself.
    #[must_use]
    pub fn throttle(mut self, throttle: Throttle) -> Self {
        self.throttle = throttle;
        self
    }
}

impl<T> Window<T, BySlot> {
    /// A window whose memory is slots, each for one origin and key.
    pub fn by_slot(name: &str) -> Self
    where
        T: Element,
    {
        Self::declare(name, Buffers::Double, 0)
    }

    /// Whether slots have one buffer or (at first) two. The same on all ranks.
    #[must_use]
    pub fn buffers(mut self, buffers: Buffers) -> Self {
        self.description.buffers = buffers as u32;
        self
    }

    /// Adds an inbound slot of `len` elements that `origin` puts into; `key` tells several of one origin apart. Inbound
    /// slots are numbered from 0 in the order of these calls: see [`Slots::slot`](super::Slots::slot).
    #[must_use]
    pub fn slot_from(mut self, origin: usize, key: u64, len: usize) -> Self {
        self.description.inbound.push(Inbound { origin, key, len });
        self
    }

    /// Adds a way to the slot that `target` has for this rank and `key`. Outbound slots are numbered from 0 in the order of these
    /// calls: see [`Slot`](super::Slot).
    #[must_use]
    pub fn slot_to(mut self, target: usize, key: u64) -> Self {
        self.description.outbound.push(Outbound {
            target,
            key,
            range: 0..0,
        });
        self
    }
}

impl<T> Window<T, ByRange> {
    /// A window of `len` elements of memory, of which origins declare ranges.
    pub fn by_range(name: &str, len: usize) -> Self
    where
        T: Element,
    {
        Self::declare(name, Buffers::Single, len)
    }

    /// Declares that this rank accesses a range of the target's memory, and no other origin does. Ranges are numbered as outbound
    /// slots, from 0 in the order of these calls: see [`Slot`](super::Slot).
    #[must_use]
    pub fn range_to(mut self, target: usize, range: Range<usize>) -> Self {
        self.description.outbound.push(Outbound {
            target,
            key: 0,
            range,
        });
        self
    }
}

impl<T> Window<T, Atomic> {
    /// A window of `len` elements of memory that origins update atomically.
    pub fn atomic(name: &str, len: usize) -> Self
    where
        T: Element,
    {
        Self::declare(name, Buffers::Single, len)
    }

    /// Declares that this rank accesses the target's memory.
    #[must_use]
    pub fn target(mut self, rank: usize) -> Self {
        // The range is filled in when the target's length is known.
        self.description.outbound.push(Outbound {
            target: rank,
            key: 0,
            range: 0..1,
        });
        self
    }
}

impl<T: Element, K: Discipline> Window<T, K> {
    /// Creates the window. Collective over all ranks of the job.
    ///
    /// # Errors
    ///
    /// [`Error::WindowMismatch`], on all ranks alike, if the declarations do not fit together; [`Error::Device`] on all ranks if one has
    /// not enough memory; [`Error::Nic`] and [`Error::Invalid`] (on this rank alone) where a peer cannot be reached; [`Error::Control`] if a rank ends meanwhile; [`Error::Capturing`] (on this rank alone).
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    pub fn open<'s, D: Device>(
        self,
        stream: &Stream<'s, D>,
    ) -> Result<(Inbox<'s, T, K, D>, Outbox<'s, T, K, D>)> {
        const { assert!(size_of::<T>() != 0, "elements have a size other than 0") };
        const {
            assert!(
                align_of::<T>() <= CELL,
                "elements are aligned to a cache line at most"
            )
        };
        stream.not_capturing("creating a window")?;
        let plan = self.meet(stream)?;
        plan.build(stream)
    }

    /// Exchanges descriptions and memory.
    fn meet<D: Device>(self, stream: &Stream<'_, D>) -> Result<Meeting<D>> {
        let world = stream.world().clone();
        let rank = world.rank();
        let name: Arc<str> = self.description.name.as_str().into();
        let id = world.reserve_window(&name);
        let mismatch = |detail: String| Error::WindowMismatch {
            window: name.clone(),
            detail,
        };

        let bytes = postcard::to_stdvec(&self.description).map_err(|e| mismatch(e.to_string()))?;
        let packets = world.control().exchange(
            "window",
            Packet {
                bytes,
                handles: Vec::new(),
            },
        )?;
        let all = packets
            .iter()
            .map(|packet| postcard::from_bytes::<Description>(&packet.bytes))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| mismatch(format!("a description could not be read: {e}")))?;
        check(&all).map_err(&mismatch)?;

        // Now every rank knows how large every rank's block is; each allocates its own.
        let shapes: Vec<_> = (0..all.len()).map(|rank| Shape::of(&all, rank)).collect();
        let mine = &shapes[rank];
        let own = world
            .device()
            .alloc(mine.bytes, Sharing::Peers)
            .map_err(Error::from)
            .and_then(|block| {
                if K::KIND == Kind::Slot && self.description.buffers == 2 {
                    for target in 0..mine.targets.len() {
                        // Both buffers are free at first: the exposure for epoch 0 has been given.
                        // SAFETY: the cell lies in the block, which nobody else knows yet.
                        unsafe {
                            world
                                .device()
                                .init_word(block.base().byte_add(mine.exposed(target)), QUANTUM)
                        };
                    }
                }
                Own::offer(&world, block, mine.lines())
            });
        let neighbour = |other: usize| {
            let near = mine.targets.contains(&other) || mine.origins.contains(&other);
            near.then(|| shapes[other].bytes)
        };
        let routes = Routes::find(&world, &name, K::KIND, own, neighbour)?;
        // Nobody may add to a word of ours before we are ready to hear of failures: the caller's thread registers the window
        // before it can enqueue anything, and words only wait to be read.
        let own = routes.own.block.clone();
        let words = (0..shapes[rank].targets.len())
            .map(|index| {
                (
                    own.base().byte_add(shapes[rank].exposed(index)),
                    shapes[rank].targets[index],
                )
            })
            .chain((0..shapes[rank].origins.len()).map(|index| {
                (
                    own.base().byte_add(shapes[rank].done(index)),
                    shapes[rank].origins[index],
                )
            }))
            .collect();
        let size = size_of::<T>();
        let mut watched =
            Watched::new(name, id, words, own, size, self.limit).with_throttle(self.throttle);
        if let Some(lines) = &routes.own.lines {
            let ranks = mine.targets.iter().chain(&mine.origins).enumerate();
            let by_nic = ranks.filter(|(_, rank)| routes.remotes[**rank].is_some());
            let sent = by_nic.map(|(line, _)| Line::sent_of(words_of(lines.base(), line)));
            watched = watched.with_lines(sent.collect(), lines.clone());
        }
        let watched = Arc::new(watched);
        world.watch_window(&watched);
        Ok(Meeting {
            all,
            shapes,
            watched,
            routes,
        })
    }
}

/// The words of a line: the targets' first, then the origins'.
fn words_of(lines: Ptr, line: usize) -> Ptr {
    lines.byte_add(line * Line::BYTES)
}

/// What is where in one rank's block: a cell for each target's exposures, one for each origin's completions, the data.
struct Shape {
    targets: Vec<usize>,
    origins: Vec<usize>,
    slots: Vec<usize>,
    /// Bytes of one buffer of data.
    buffer: usize,
    bytes: usize,
}

impl Shape {
    fn of(all: &[Description], rank: usize) -> Self {
        let (targets, origins) = (all[rank].targets(), origins(all, rank));
        let (slots, buffer) = all[rank].slots().expect("sizes were checked");
        let mut shape = Shape {
            targets,
            origins,
            slots,
            buffer,
            bytes: 0,
        };
        // Never empty, so that every rank has a block to share.
        shape.bytes = (shape.data() + buffer * all[rank].buffers as usize).max(CELL);
        shape
    }

    fn exposed(&self, target: usize) -> usize {
        target * CELL
    }

    fn done(&self, origin: usize) -> usize {
        (self.targets.len() + origin) * CELL
    }

    /// How many ways there are to other ranks.
    fn lines(&self) -> usize {
        self.targets.len() + self.origins.len()
    }

    fn data(&self) -> usize {
        (self.targets.len() + self.origins.len()) * CELL
    }

    fn flip(&self, buffers: u32) -> usize {
        if buffers == 2 { self.buffer } else { 0 }
    }
}

/// All that the ranks have told each other.
struct Meeting<D: Device> {
    all: Vec<Description>,
    shapes: Vec<Shape>,
    watched: Arc<Watched<D>>,
    routes: Routes<D>,
}

/// Where the operand lies in a cell.
const OPERAND: usize = 8;

fn index_of(rank: usize, ranks: &[usize]) -> usize {
    ranks
        .iter()
        .position(|each| *each == rank)
        .expect("the two sides of an edge know each other")
}

impl<D: Device> Meeting<D> {
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    fn build<'s, T: Element, K: Discipline>(
        self,
        stream: &Stream<'s, D>,
    ) -> Result<(Inbox<'s, T, K, D>, Outbox<'s, T, K, D>)> {
        let world = stream.world();
        let rank = world.rank();
        let shape = &self.shapes[rank];
        let own = self.watched.block.base();
        let routes = &self.routes;
        let base = |other: usize| match &routes.blocks[other] {
            _ if routes.remotes[other].is_some() => Ptr::NULL,
            _ if other == rank => own,
            Some(block) => block.base(),
            None => unreachable!("neighbours are mapped or behind the NIC"),
        };
        let peer = |line: usize, other: usize, word: Ptr, remote: usize| -> Result<Peer> {
            let way = match &routes.remotes[other] {
                None => Way::Mapped {
                    word: base(other).byte_add(remote),
                    bell: world.bell(other).expect("mapped peers are on this node"),
                },
                Some(memory) => {
                    let lines = routes.own.lines.as_ref().expect("there is a NIC");
                    let parts = LineParts {
                        peer: other,
                        words: words_of(lines.base(), line),
                        remote: memory.clone(),
                        signal: remote,
                        tag: Tag {
                            window: self.watched.id,
                            peer: other as u32,
                            awaited: Awaited::Ticket,
                        },
                        keep: self.watched.clone(),
                    };
                    // SAFETY: the words are zeroed, this line's alone, and kept by the window; the signal is the peer's word for this rank.
                    Way::Nic(Arc::new(unsafe { Line::new(world, parts) }?))
                }
            };
            Ok(Peer {
                rank: other,
                word,
                operand: word.byte_add(OPERAND),
                way,
            })
        };
        let targets = shape.targets.iter().enumerate().map(|(index, &target)| {
            let there = &self.shapes[target];
            let done = there.done(index_of(rank, &there.origins));
            peer(index, target, own.byte_add(shape.exposed(index)), done)
        });
        let origins = shape.origins.iter().enumerate().map(|(index, &origin)| {
            let there = &self.shapes[origin];
            let exposed = there.exposed(index_of(rank, &there.targets));
            let line = shape.targets.len() + index;
            peer(line, origin, own.byte_add(shape.done(index)), exposed)
        });
        let (targets, origins) = (
            targets.collect::<Result<Vec<_>>>()?,
            origins.collect::<Result<Vec<_>>>()?,
        );
        let lines = targets.iter().chain(&origins).filter_map(Peer::line);
        self.watched.has_lines(lines.map(Arc::downgrade).collect());
        let by_nic: Vec<_> = routes.remotes.iter().map(Option::is_some).collect();
        let base: Vec<_> = shape.targets.iter().map(|target| base(*target)).collect();
        let registration = routes.own.registration.clone();
        let blocks = Arc::new(self.routes.blocks);
        let myself = Arc::new(Myself::default());
        myself
            .inbox_home
            .store(home_number(stream), Ordering::Relaxed);
        let half = |peers: Vec<Peer>| Half {
            id: fresh_id(),
            home: stream.raw().reclaim().clone(),
            world: world.clone(),
            window: self.watched.clone(),
            _blocks: blocks.clone(),
            _reach: Reach {
                registration: registration.clone(),
                window: self.watched.clone(),
            },
            peers,
            myself: myself.clone(),
        };
        let (inbound, outbound) = (half(origins), half(targets));

        let mine = &self.all[rank];
        let entries = mine
            .inbound
            .iter()
            .zip(&shape.slots)
            .map(|(slot, offset)| SlotEntry {
                base: own.byte_add(shape.data() + offset),
                len: slot.len as u64,
                flip: shape.flip(mine.buffers) as u64,
                operand: inbound.peers[index_of(slot.origin, &shape.origins)].operand,
            });
        let entries: Vec<_> = entries.collect();
        let memory = own.byte_add(shape.data());
        let table = Table::new(world.device(), &entries, memory, mine.memory)?;
        let edges = mine.outbound.iter().map(|out| {
            let (target, there) = (&self.all[out.target], &self.shapes[out.target]);
            let (offset, len) = match K::KIND {
                Kind::Slot => {
                    let is_ours = |slot: &Inbound| (slot.origin, slot.key) == (rank, out.key);
                    let index = target
                        .inbound
                        .iter()
                        .position(is_ours)
                        .expect("edges were checked");
                    (there.slots[index], target.inbound[index].len)
                }
                Kind::Range => (out.range.start * mine.size, out.range.len()),
                Kind::Atomic => (0, target.memory),
            };
            let lane = index_of(out.target, &shape.targets);
            let by_nic = by_nic[out.target];
            Edge {
                lane,
                base: if by_nic {
                    Ptr::NULL
                } else {
                    base[lane].byte_add(there.data() + offset)
                },
                offset: there.data() + offset,
                by_nic,
                first: offset / mine.size,
                flip: there.flip(mine.buffers),
                len,
            }
        });
        let edges = edges.collect();
        let early = u64::from(mine.buffers == 2);
        Ok((
            Inbox::new(InboxBody::new(inbound, table)?),
            Outbox::new(OutboxBody::new(outbound, edges, early)),
        ))
    }
}
