//! Opening windows.

use std::collections::BTreeMap;
use std::iter::repeat;
use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::batch::{Awaited, Landed, QUANTUM, Tag};
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::far;
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::site::CallSite;

use super::check::check;
use super::declare::Window;
use super::describe::{Description, Purpose};
use super::edge::{Edge, Staging};
use super::edges::Edges;
use super::exposure::InboxBody;
use super::outbox::OutboxBody;
use super::routes::{Own, Routes};
use super::shape::{Shape, index_of, words_of};
use super::through::{Farewell, Reach};
use super::view::{SlotEntry, Table};
use super::{Discipline, Half, Inbox, Kind, Link, Outbox, Peer};
use crate::element::Element;
use crate::epochs::Epochs;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{EpochError, Result, SlotName};
use crate::footprint::Footprint;
use crate::ground::{fresh_id, visited};
use crate::half_kind::HalfKind;
use crate::layout::Chosen;
use crate::myself::Myself;
use crate::nic::{LineParts, NicLine};
use crate::stream::{Stream, home_number};
use crate::world::{Agreement, Watched, Which};

// The operands must lie outside of the memory that a bus keeps beside a word.
const _: () =
    assert!(Shape::CELL == far::CELL && Shape::BUFFERS + size_of::<u64>() <= far::MAILBOX);

impl<T: Element, K: Discipline> Window<T, K> {
    fn purpose(&self) -> Purpose {
        self.description.purpose
    }

    /// Opens the window. All ranks of the job call this, and they open their windows in the same order.
    ///
    /// # Errors
    ///
    /// The window is open on all ranks or on none.
    ///
    /// All ranks get the same error in these cases:
    ///
    /// - [`WindowError::Disagreement`](crate::error::WindowError::Disagreement): the declarations do not fit together,
    ///   or belong to different windows.
    /// - [`WindowError::NameTaken`](crate::error::WindowError::NameTaken): a rank still holds a window with this name.
    /// - [`WindowError::NotCreated`](crate::error::WindowError::NotCreated): a rank is short of memory, descriptors, or
    ///   queues of its NIC. The error names the rank and the limit.
    ///
    /// If this rank cannot reach a peer, it gets [`Error::Nic`],
    /// [`WindowError::NotMapped`](crate::error::WindowError::NotMapped),
    /// [`WindowError::NoNic`](crate::error::WindowError::NoNic) or
    /// [`WindowError::NewNic`](crate::error::WindowError::NewNic). The others get
    /// [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), which names this rank and its error.
    ///
    /// If a rank ends meanwhile, the error is [`Error::Control`].
    ///
    /// Two errors concern this rank alone, and the others wait for its next attempt:
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside), and [`Error::Control`] if the declaration is too
    /// long for a message.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// let peer = 1 - world.rank();
    /// let mut window = SlotWindow::<f64>::new("halo");
    /// let (from, to) = (window.slot_from(peer, 0, 100), window.slot_to(peer, 0));
    /// let (inbox, outbox) = window.open(&s)?; // all ranks call it
    /// # Ok(()) });
    /// ```
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    pub fn open<'s, D: Device>(
        self,
        stream: &Stream<'s, D>,
    ) -> Result<(Inbox<'s, T, D, K>, Outbox<'s, T, D, K>)> {
        let (halves, ()) = self.open_with(stream, |_, _| Ok(()))?;
        Ok(halves)
    }

    /// Like [`Window::open`], and makes a value of the two halves. If one rank cannot make it, no rank has the window.
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    pub(crate) fn open_with<'s, D: Device, R>(
        self,
        stream: &Stream<'s, D>,
        make: impl FnOnce(&Inbox<'s, T, D, K>, &Outbox<'s, T, D, K>) -> Result<R>,
    ) -> Result<((Inbox<'s, T, D, K>, Outbox<'s, T, D, K>), R)> {
        const { assert!(size_of::<T>() != 0, "elements have a size other than 0") };
        const {
            assert!(
                align_of::<T>() <= Shape::CELL,
                "elements are aligned to a cache line at most"
            )
        };
        stream.not_capturing("creating a window")?;
        let world = stream.world();
        // This is held until all exchanges about this window are made: see `Agreement`.
        let agreement = world.agreement(format!("{} `{}`", self.purpose().opening(), self.name))?;
        let declaration = self.id;
        let (which, met) = self.meet(&agreement)?;
        let mut size = (0, 0, 0);
        let built = met.and_then(|meeting| {
            let watched = meeting.watched.clone();
            size = meeting.size(world.rank());
            let halves = meeting.build(stream, declaration).inspect_err(|_| {
                world.drops(watched.id, &HalfKind::BOTH);
            })?;
            let made = make(&halves.0, &halves.1)?;
            watched.may_open();
            Ok((watched, halves, made))
        });
        let refused = |(watched, ..): &(Arc<Watched<D>>, _, _)| watched.is_refused();
        let (watched, halves, made) = agreement.agree(&which, built, refused)?;
        // A program that hears of the window may open others.
        drop(agreement);
        let (name, id) = (&watched.name, watched.id);
        let (targets, origins, bytes) = size;
        tidegate_hal::tell(
            || tracing::info!(window = %name, %id, targets, origins, bytes, "a window is open"),
        );
        Ok((halves, made))
    }

    /// Exchanges descriptions and memory. The inner error is a failure of this rank that the others have not heard of
    /// yet.
    fn meet<D: Device>(
        mut self,
        agreement: &Agreement<'_, D>,
    ) -> Result<(Which, Result<Meeting<D>>)> {
        let world = agreement.world();
        let rank = world.rank();
        self.description = self.description.in_full(rank, world.size());
        self.description.staged = world.staged();
        self.description.started_alone = world.started_alone();
        self.description.land_up_to = world.device().land_up_to();
        if world.staged() {
            let far = |other: &usize| {
                let near = *other < world.size() && world.bell(*other).is_some();
                *other < world.size() && world.by_nic(*other, near)
            };
            self.description.far = self.description.neighbours();
            self.description.far.retain(far);
        }
        let name = self.name.clone();
        if !self
            .layouts
            .values()
            .all(|layout| layout.fits(world.device()))
        {
            let refusal = || EpochError::OtherDevice.into();
            self.refused.get_or_insert_with(refusal);
        }
        let said = match self.refused.take() {
            Some(error) => Err(error),
            None => Ok((self.description.in_short(), Vec::new())),
        };
        let label = self.purpose().label();
        let (which, all) = agreement.begin(label, &name, said)?;
        let id = which.id;
        let size = world.size();
        let all = all.into_iter().enumerate();
        let all = all.map(|(rank, (each, _))| each.in_full(rank, size));
        let all: Vec<Description> = all.collect();
        let edges = Edges::new(&all);
        check(&edges).map_err(|found| which.disagreement(found))?;

        // Now every rank knows the size of every block, and allocates its own.
        let shapes: Vec<_> = (0..all.len()).map(|rank| Shape::of(&edges, rank)).collect();
        let mine = &shapes[rank];
        let own = mine.allocate(world.device()).and_then(|(block, far)| {
            // Both buffers are free at first, so the exposure for epoch 0 has been given already.
            let before = self.description.before;
            let exposed = before + exposed_at_first::<K>(&self.description);
            let exposed = (mine.targets.iter().enumerate())
                .map(|(index, rank)| (*rank, mine.exposed(index), exposed));
            let done = (mine.origins.iter().enumerate())
                .map(|(index, rank)| (*rank, mine.done(index), before));
            for (rank, cell, count) in exposed.chain(done) {
                let there = mine.of_rank(rank, &block, far.as_ref()).base();
                let word = (there.byte_add(cell), count);
                let operand = (block.base().byte_add(cell + Shape::OPERAND), before);
                for (at, count) in [word, operand].into_iter().filter(|(_, count)| *count != 0) {
                    // All ranks have checked that `before` is no more than `MOST`, so this does not overflow.
                    // SAFETY: the cells lie in this rank's blocks, which no other rank knows yet.
                    unsafe { world.device().init_word(at, count * QUANTUM) };
                }
            }
            Own::offer(world, block, far, mine.lines())
        });
        let neighbour = |other: usize| {
            mine.is_neighbour(other).then(|| {
                let there = &shapes[other];
                (there.bytes, there.is_far(rank).then_some(there.far_bytes))
            })
        };
        let routes = match Routes::find(agreement, &which, K::KIND, own, neighbour)? {
            Ok(routes) => routes,
            Err(error) => return Ok((which, Err(error))),
        };
        // This rank must be able to hear of failures before it waits for a word. So this thread registers the window
        // before it can enqueue anything; until then, words only wait to be read.
        let own = &routes.own;
        let word = |(index, peer): (usize, &usize), at: fn(&Shape, usize) -> usize| {
            let block = mine.of_rank(*peer, &own.block, own.far.as_ref());
            (block.base().byte_add(at(mine, index)), *peer)
        };
        let exposed = mine.targets.iter().enumerate();
        let done = mine.origins.iter().enumerate();
        let words = exposed
            .map(|each| word(each, Shape::exposed))
            .chain(done.map(|each| word(each, Shape::done)));
        let size = size_of::<T>();
        let (words, block) = (words.collect(), own.block.clone());
        let mut watched =
            Watched::new(name, id, words, block, size, self.limit).with_throttle(self.throttle);
        if let Some(lines) = &own.lines {
            let ranks = mine.targets.iter().chain(&mine.origins).enumerate();
            let by_nic = ranks.filter(|(_, rank)| routes.remotes[**rank].is_some());
            let sent = by_nic.map(|(line, _)| NicLine::sent_of(words_of(lines.base(), line)));
            let sent: Vec<_> = sent.collect();
            if mine.is_staged() {
                // All buffers of staged memory are free at first: see `NicLine::wait_for_buffer`.
                for word in &sent {
                    let free = u64::from(self.description.buffers) * QUANTUM;
                    // SAFETY: the word lies in the block of the lines, of which no line has been made yet.
                    unsafe { world.device().init_word(*word, free) };
                }
            }
            let blocks = own.far.iter().chain([lines]).cloned();
            watched = watched.with_lines(sent, blocks.collect());
        }
        let watched = Arc::new(watched);
        world.watch_window(&watched);
        world.holds(id, exposed_at_first::<K>(&self.description));
        let at_targets = all[rank].outbound.iter();
        let at_targets = at_targets.map(|out| edges.slot(out.target, rank, out.key));
        let at_targets = at_targets.collect();
        let meeting = Meeting {
            at_targets,
            layouts: self.layouts,
            sites: self.sites,
            all,
            shapes,
            watched,
            routes,
        };
        Ok((which, Ok(meeting)))
    }
}

/// How many exposures every origin has from the beginning, when its buffers are free.
fn exposed_at_first<K: Discipline>(description: &Description) -> u64 {
    u64::from(K::KIND == Kind::Slot && description.buffers == 2)
}

/// What the ranks have told each other.
struct Meeting<D: Device> {
    all: Vec<Description>,
    /// For each outbound slot of this rank, the number of the slot at its target.
    at_targets: Vec<Option<usize>>,
    /// The outbound slots of this rank that are layouts, by number.
    layouts: BTreeMap<u32, Chosen>,
    /// The program's calls that declared the outbound slots.
    sites: Vec<CallSite>,
    shapes: Vec<Shape>,
    watched: Arc<Watched<D>>,
    routes: Routes<D>,
}

impl<D: Device> Meeting<D> {
    /// How many targets and origins this rank has, and how many bytes it has allocated for them.
    fn size(&self, rank: usize) -> (usize, usize, usize) {
        let shape = &self.shapes[rank];
        let bytes = shape.bytes + shape.far_bytes;
        (shape.targets.len(), shape.origins.len(), bytes)
    }

    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    fn build<'s, T: Element, K: Discipline>(
        self,
        stream: &Stream<'s, D>,
        declaration: u64,
    ) -> Result<(Inbox<'s, T, D, K>, Outbox<'s, T, D, K>)> {
        let world = stream.world();
        let rank = world.rank();
        let shape = &self.shapes[rank];
        let own = self.watched.block.base();
        let routes = &self.routes;
        let far = routes.own.far.as_ref().map_or(Ptr::NULL, |far| far.base());
        let neighbours = &routes.with_nic;
        let farewell = world
            .nic()
            .map(|_| Farewell::new(world, &self.watched, neighbours.clone()));
        // Words and data that a NIC accesses lie in the staged block, and operands in the device's own block.
        let of = |other: usize| if shape.is_far(other) { far } else { own };
        let base = |other: usize| match &routes.blocks[other] {
            _ if routes.remotes[other].is_some() => Ptr::NULL,
            _ if other == rank => own,
            Some(block) => block.base(),
            None => unreachable!("neighbours are mapped or behind the NIC"),
        };
        let peer =
            |line: usize, other: usize, cell: usize, remote: usize, first: u64| -> Result<Peer> {
                let link = match &routes.remotes[other] {
                    None => Link::Mapped {
                        word: base(other).byte_add(remote),
                        bell: world.bell(other).expect("mapped peers are on this node"),
                    },
                    Some(memory) => {
                        let nic = world.nic().expect("a line was routed by the NIC");
                        let lines = routes.own.lines.as_ref().expect("there is a NIC");
                        let parts = LineParts {
                            peer: other,
                            words: words_of(lines.base(), line),
                            remote: memory.clone(),
                            signal: remote,
                            first,
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
                    landed: None,
                    link,
                })
            };
        // A rank that has a landing has only that one slot, and is near.
        let mine = &self.all[rank];
        let mut landed = vec![None; shape.origins.len()];
        for (index, slot) in mine.inbound.iter().enumerate() {
            visited();
            if let Some(from) = shape.landing(index, own) {
                landed[index_of(slot.origin, &shape.origins)] = Some(Landed {
                    from,
                    slot: own.byte_add(shape.data() + shape.slots[index]),
                    flip: shape.flip(slot.origin),
                    bytes: slot.len * mine.size,
                });
            }
        }
        let targets = shape.targets.iter().enumerate().map(|(index, &target)| {
            let there = &self.shapes[target];
            let done = there.done(index_of(rank, &there.origins));
            peer(index, target, shape.exposed(index), done, 0)
        });
        let origins = shape.origins.iter().enumerate().map(|(index, &origin)| {
            let there = &self.shapes[origin];
            let exposed = there.exposed(index_of(rank, &there.targets));
            let line = shape.targets.len() + index;
            // All ranks have described the window alike.
            let first = exposed_at_first::<K>(&self.all[origin]);
            let peer = peer(line, origin, shape.done(index), exposed, first)?;
            Ok(Peer {
                landed: landed[index],
                ..peer
            })
        });
        let (targets, origins) = (
            targets.collect::<Result<Vec<_>>>()?,
            origins.collect::<Result<Vec<_>>>()?,
        );
        let lines = targets.iter().chain(&origins).filter_map(Peer::line);
        self.watched.has_lines(lines.map(Arc::downgrade).collect());
        let by_nic: Vec<_> = routes.remotes.iter().map(Option::is_some).collect();
        let base: Vec<_> = shape.targets.iter().map(|target| base(*target)).collect();
        let reach = Arc::new(Reach {
            world: world.clone(),
            window: self.watched.clone(),
            neighbours: neighbours.clone(),
            registration: routes.own.registration.clone(),
        });
        let blocks = Arc::new(self.routes.blocks);
        let ids = [fresh_id(), fresh_id()];
        let myself = shape.targets.contains(&rank).then(|| {
            let early = u8::from(self.all[rank].buffers == 2);
            Arc::new(Myself::new(&self.watched, ids, home_number(stream), early))
        });
        let half = |peers: Vec<Peer>, kind: HalfKind, early| Half {
            id: ids[kind as usize],
            declaration,
            epochs: Epochs::new(
                self.watched.named(),
                kind,
                peers.iter().map(|peer| peer.rank).collect(),
                mine.before,
                early,
            ),
            home: stream.raw().reclaim().clone(),
            world: world.clone(),
            window: self.watched.clone(),
            _blocks: blocks.clone(),
            _reach: reach.clone(),
            peers,
            myself: myself.clone(),
        };
        let early = exposed_at_first::<K>(mine);
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
        let all_ways = self.all.iter().flat_map(|each| &each.outbound);
        let here = all_ways.filter(|out| K::KIND == Kind::Range && out.target == rank);
        let footprints = here.map(|out| out.elements.clone()).collect();
        let memory = own.byte_add(shape.data());
        let table = Table::new(world.device(), &entries, memory, mine.memory)?;
        let mut layouts = self.layouts;
        // No program declares the slots of a barrier or an all-reduce, and no operation on them is refused.
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
                let (target, there) = (&self.all[out.target], &self.shapes[out.target]);
                let lane = index_of(out.target, &shape.targets);
                let mut landing = None;
                let layout = layouts.remove(&number).map(Box::new);
                let (offset, len) = match K::KIND {
                    Kind::Slot => {
                        let index = at_target.expect("edges were checked");
                        landing = there.landing(index, base[lane]);
                        (there.slots[index], target.inbound[index].len)
                    }
                    Kind::Range => match (&layout, &out.elements) {
                        (None, Footprint::Range(range)) => (range.start * mine.size, range.len()),
                        _ => (0, 0),
                    },
                    Kind::Atomic => (0, target.memory),
                };
                let by_nic = by_nic[out.target];
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
                    base: if by_nic {
                        Ptr::NULL
                    } else {
                        base[lane].byte_add(there.data() + offset)
                    },
                    offset: there.data() + offset,
                    by_nic,
                    landing: landing.filter(|_| !by_nic),
                    staging: staging.map(|offset| Staging {
                        base: far.byte_add(offset),
                        flip: shape.staging_flip(),
                    }),
                    flip: there.flip(rank),
                    len,
                    taken: 0,
                    layout,
                    name: Box::new(name),
                }
            });
        let edges = edges.collect();
        Ok((
            Inbox::new(InboxBody::new(inbound, table, footprints)?),
            Outbox::new(OutboxBody::new(outbound, edges)),
        ))
    }
}
