//! What a rank has after it has met its neighbours, and how the two halves of a window are made of it.

use std::collections::BTreeMap;
use std::iter::repeat;
use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::batch::{Awaited, Landed, Shape as Elements, Side, Tag};
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::nic::Keep;
use tidegate_hal::process::memory::Readable;
use tidegate_hal::site::CallSite;

use super::describe::Description;
use super::edge::{Edge, Staging};
use super::exposure::InboxBody;
use super::half::PeerRange;
use super::outbox::OutboxBody;
use super::routes::{Own, Route, Routes, Way};
use super::shape::{Shape, index_of, words_of};
use super::through::{Farewell, Reach};
use super::view::{SlotEntry, Table};
use super::{Discipline, Half, Inbox, Kind, Link, Outbox, Peer};
use crate::element::Element;
use crate::epochs::Epochs;
use crate::error::{Result, SlotName};
use crate::footprint::Footprint;
use crate::ground::{fresh_id, visited};
use crate::half_kind::HalfKind;
use crate::layout::{Chosen, Layout};
use crate::myself::Myself;
use crate::nic::{LineParts, NicLine};
use crate::stream::{Stream, home_number};
use crate::world::{Roster, Watched};

/// What a rank has after it has met its neighbours.
pub(super) struct Meeting<D: Device> {
    pub(super) description: Description,
    /// For each outbound slot of this rank, its place among the target's slots for this rank, and its length. In a
    /// window by range, its place among those to the target, and its length.
    pub(super) at_targets: Vec<Option<(usize, usize)>>,
    /// What origins have declared of this rank's memory, in a window by range.
    pub(super) footprints: Vec<Footprint>,
    /// The layouts of far origins, by origin and place.
    pub(super) orders: BTreeMap<(usize, usize), Layout<D>>,
    /// The outbound slots of this rank that are layouts, by number.
    pub(super) layouts: BTreeMap<u32, Chosen>,
    /// The program's calls that declared the outbound slots.
    pub(super) sites: Vec<CallSite>,
    pub(super) shape: Shape,
    pub(super) watched: Arc<Watched<D>>,
    pub(super) own: Own<D>,
    pub(super) routes: Routes<D>,
}

impl<D: Device> Meeting<D> {
    /// How many targets and origins this rank has, and how many bytes it has allocated for them.
    pub(super) fn size(&self) -> (usize, usize, usize) {
        let shape = &self.shape;
        let bytes = shape.bytes + shape.far_bytes;
        (shape.targets.len(), shape.origins.len(), bytes)
    }

    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    pub(super) fn build<'s, T: Element, K: Discipline>(
        mut self,
        stream: &Stream<'s, D>,
        roster: &Arc<Roster>,
        declaration: u64,
    ) -> Result<(Inbox<'s, T, D, K>, Outbox<'s, T, D, K>)> {
        let world = stream.world();
        let rank = world.rank();
        let blocks = Arc::new(std::mem::take(&mut self.routes.blocks));
        let (mine, shape, routes) = (&self.description, &self.shape, &self.routes);
        let own = self.watched.block.base();
        let far = self.own.far.as_ref().map_or(Ptr::NULL, |far| far.base());
        let neighbours = routes.with_nic();
        let farewell = world
            .nic()
            .map(|_| Farewell::new(world, &self.watched, neighbours.clone()));
        // Words and data that a NIC accesses lie in the staged block, and operands in the device's own block.
        let of = |other: usize| if shape.is_far(other) { far } else { own };
        // `cell` is the offset of the word that this rank waits on, and `remote` of the one that it adds to.
        let peer =
            |line: usize, route: &Route, cell: usize, remote: usize, first: u64| -> Result<Peer> {
                let other = route.rank;
                let link = match &route.way {
                    Way::Mapped(base) => Link::Mapped {
                        word: base.byte_add(remote),
                        bell: world.bell(other).expect("mapped peers are on this node"),
                    },
                    Way::Nic(memory) => {
                        let nic = world.nic().expect("a line was routed by the NIC");
                        let lines = self.own.lines.as_ref().expect("there is a NIC");
                        let parts = LineParts {
                            peer: other,
                            words: words_of(lines.base(), line),
                            remote: memory.clone(),
                            signal: remote,
                            first,
                            back: of(other).byte_add(cell),
                            tag: Tag {
                                window: Some(self.watched.id),
                                peer: other as u32,
                                awaited: Awaited::Ticket,
                            },
                            keep: Arc::new((self.watched.clone(), farewell.clone())),
                        };
                        // SAFETY: the words are as `meet` made them, belong to this line alone, and are kept by the
                        // window. The signal is the peer's word for this rank.
                        Link::Nic(Arc::new(unsafe {
                            NicLine::new(nic, world.device(), parts)
                        }?))
                    }
                };
                Ok(Peer {
                    rank: other,
                    word: of(other).byte_add(cell),
                    operand: own.byte_add(cell + Shape::OPERAND),
                    buffers: own.byte_add(cell + Shape::BUFFERS),
                    fired: (K::KIND == Kind::Range && shape.is_far(other))
                        .then(|| own.byte_add(cell + Shape::FIRED)),
                    landed: None,
                    ring: None,
                    reads: None,
                    ranges: Vec::new(),
                    link,
                })
            };
        // A rank that has a landing has only that one slot, and is near.
        let mut landed = vec![None; shape.origins.len()];
        for (index, slot) in mine.inbound.iter().enumerate() {
            visited();
            if let Some(from) = shape.landing(index, own) {
                landed[index_of(slot.origin, &shape.origins)] = Some(Landed {
                    from,
                    slot: own.byte_add(shape.data() + shape.slots[index]),
                    flip: shape.flip(slot.origin),
                    bytes: slot.len * mine.terms.size,
                });
            }
        }
        let targets = shape.targets.iter().enumerate().map(|(index, &target)| {
            let route = routes.of(target);
            let peer = peer(index, route, shape.exposed(index), route.place.done, 0)?;
            let ring = route.place.ring.zip(route.base());
            let ring = ring.map(|(ring, base)| ring.at(base));
            let reads = route.place.reads.then(Readable::here);
            Ok(Peer {
                ring,
                reads,
                ..peer
            })
        });
        // All ranks have described the window alike.
        let early = mine.exposed_at_first();
        let origins = shape.origins.iter().enumerate().map(|(index, &origin)| {
            let route = routes.of(origin);
            let line = shape.targets.len() + index;
            let peer = peer(line, route, shape.done(index), route.place.exposed, early)?;
            let ranges = shape.far_ranges(origin).iter().enumerate();
            let ranges = ranges.filter(|(_, range)| range.len > 0);
            let ranges = ranges.map(|(place, range)| {
                let layout = self.orders.get(&(origin, place));
                let (first, shape_of) =
                    layout.map_or((range.first, Elements::Linear), Layout::shape);
                let near = Side {
                    base: own.byte_add(shape.data() + first * mine.terms.size),
                    flip: 0,
                    shape: shape_of,
                };
                PeerRange {
                    near,
                    copy: far.byte_add(range.copy),
                    count: range.len,
                    keep: layout.map(|layout| layout.keep() as Keep),
                }
            });
            Ok(Peer {
                landed: landed[index],
                ring: shape.ring(origin, own),
                reads: shape.reads(origin),
                ranges: ranges.collect(),
                ..peer
            })
        });
        let (targets, origins) = (
            targets.collect::<Result<Vec<_>>>()?,
            origins.collect::<Result<Vec<_>>>()?,
        );
        let lines = targets.iter().chain(&origins).filter_map(Peer::line);
        self.watched.has_lines(lines.map(Arc::downgrade).collect());
        let reach = Arc::new(Reach {
            world: world.clone(),
            window: self.watched.clone(),
            neighbours,
            registration: self.own.registration.clone(),
        });
        let ids = [fresh_id(), fresh_id()];
        let myself = shape.targets.contains(&rank).then(|| {
            let early = u8::from(mine.terms.buffers == 2);
            Arc::new(Myself::new(&self.watched, ids, home_number(stream), early))
        });
        let half = |peers: Vec<Peer>, kind: HalfKind, early| Half {
            id: ids[kind as usize],
            declaration,
            epochs: Epochs::new(
                self.watched.named(),
                kind,
                peers.iter().map(|peer| peer.rank).collect(),
                mine.terms.before,
                early,
            ),
            home: stream.raw().reclaim().clone(),
            world: world.clone(),
            roster: roster.clone(),
            window: self.watched.clone(),
            _blocks: blocks.clone(),
            _reach: reach.clone(),
            peers,
            myself: myself.clone(),
        };
        let inbound = half(origins, HalfKind::Inbox, early);
        let outbound = half(targets, HalfKind::Outbox, 0);

        let entries = mine
            .inbound
            .iter()
            .zip(&shape.slots)
            .map(|(slot, offset)| SlotEntry {
                base: of(slot.origin).byte_add(shape.data() + offset),
                len: slot.len as u64,
                flip: shape.flip(slot.origin) as u64,
                operand: inbound.peers[index_of(slot.origin, &shape.origins)].operand,
            });
        let entries: Vec<_> = entries.collect();
        let memory = own.byte_add(shape.data());
        let table = Table::new(world.device(), &entries, memory, mine.memory)?;
        let mut layouts = self.layouts;
        // No program declares the slots of a collective, and no operation on them is refused.
        let sites = self.sites.into_iter().chain(repeat(Location::caller()));
        let edges = mine
            .outbound
            .iter()
            .zip(0u32..)
            .zip(&shape.staging)
            .zip(&self.at_targets)
            .zip(sites)
            .map(|((((out, number), staging), at_target), declared)| {
                visited();
                let route = routes.of(out.target);
                let there = &route.place;
                let base = route.base();
                let lane = index_of(out.target, &shape.targets);
                let mut landing = None;
                let layout = layouts.remove(&number).map(Box::new);
                let (offset, len) = match K::KIND {
                    Kind::Slot => {
                        let (slot, len) = at_target.expect("edges were checked");
                        landing = base.and_then(|base| there.landing(slot, base));
                        (there.slots[slot].0, len)
                    }
                    // The NIC accesses a copy of the elements, where those of a layout lie in its order.
                    Kind::Range if staging.is_some() => {
                        let (range, len) = at_target.expect("the target has told of its copies");
                        let len = if layout.is_some() { 0 } else { len };
                        (there.slots[range].0, len)
                    }
                    Kind::Range => match (&layout, &out.elements) {
                        (None, Footprint::Range(range)) => {
                            (there.memory + range.start * mine.terms.size, range.len())
                        }
                        _ => (there.memory, 0),
                    },
                    Kind::Atomic => (there.memory, there.len),
                };
                let name = SlotName {
                    what: match (K::KIND, &layout) {
                        (Kind::Slot, _) => "slot",
                        (Kind::Range, None) => "range",
                        (Kind::Range, Some(_)) => "layout",
                        (Kind::Atomic, _) => "memory",
                    },
                    rank: out.target,
                    key: (K::KIND == Kind::Slot).then_some(out.key),
                    index: number,
                    declared,
                };
                Edge {
                    lane,
                    base: base.map_or(Ptr::NULL, |base| base.byte_add(offset)),
                    offset,
                    by_nic: base.is_none(),
                    landing,
                    staging: staging.map(|offset| Staging {
                        base: far.byte_add(offset),
                        flip: shape.staging_flip(),
                    }),
                    flip: there.flip,
                    buffers: there.ring.map_or(2, |ring| ring.buffers),
                    len,
                    taken: 0,
                    layout,
                    name: Box::new(name),
                }
            });
        let edges = edges.collect();
        Ok((
            Inbox::new(InboxBody::new(inbound, table, self.footprints)?),
            Outbox::new(OutboxBody::new(outbound, edges)),
        ))
    }
}
