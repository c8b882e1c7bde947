//! What a rank and its neighbours say of each other, with indices that find it quickly.
//!
//! # Model
//!
//! A rank tells each neighbour the [`Part`] of its description that concerns the neighbour, and gets the neighbour's. So
//! both ends of an edge know what both have declared, and nobody else does. Each end checks what it has declared itself.
//! A target by range learns in this way who its origins are.
//!
//! Both ends number the slots of an edge alike: by their place among the slots that the target has for the origin.

use tidegate_hal::control::{Letter, Packet};

use super::describe::{Description, Inbound, Part, PartOut};
use crate::error::Disagreement;
use crate::ground::visited;

/// Keys, in ascending order, with their places in the list that they come from. Equal keys keep their order.
#[derive(Default)]
struct Keys(Vec<(u64, usize)>);

impl Keys {
    fn of(keys: impl Iterator<Item = u64>) -> Self {
        let mut keys: Vec<_> = keys.zip(0..).inspect(|_| visited()).collect();
        keys.sort_unstable();
        Keys(keys)
    }

    /// The first place of a key.
    fn find(&self, key: u64) -> Option<usize> {
        visited();
        let at = self.0.partition_point(|(each, _)| *each < key);
        let found = self.0.get(at).filter(|(each, _)| *each == key);
        found.map(|(_, place)| *place)
    }

    /// A key that occurs more than once.
    fn twice(&self) -> Option<u64> {
        let mut pairs = self.0.windows(2);
        pairs
            .find(|pair| pair[0].0 == pair[1].0)
            .map(|pair| pair[0].0)
    }
}

/// A rank that this one puts to or gets puts from. It may be this rank itself.
#[derive(Default)]
pub(super) struct Neighbour {
    pub(super) rank: usize,
    /// The numbers of this rank's slots for it, in the order of their declaration.
    pub(super) inbound: Vec<usize>,
    /// The numbers of this rank's outbound slots to it.
    pub(super) outbound: Vec<usize>,
    /// What it has told this rank. Empty if it has told nothing.
    pub(super) said: Part,
    /// The keys of what it has told.
    said_inbound: Keys,
    said_outbound: Keys,
}

impl Neighbour {
    /// The place of its slot with this key among its slots for this rank, and the slot's length.
    pub(super) fn slot(&self, key: u64) -> Option<(usize, usize)> {
        let place = self.said_inbound.find(key)?;
        Some((place, self.said.inbound[place].1))
    }

    /// Whether it puts to this rank's slot with this key.
    pub(super) fn puts_to(&self, key: u64) -> bool {
        self.said_outbound.find(key).is_some()
    }
}

/// The edges of one rank.
pub(super) struct Edges<'a> {
    pub(super) rank: usize,
    pub(super) mine: &'a Description,
    /// In ascending order.
    pub(super) neighbours: Vec<Neighbour>,
}

impl<'a> Edges<'a> {
    /// The edges that the rank has declared.
    pub(super) fn new(rank: usize, mine: &'a Description) -> Self {
        let ranks = mine.neighbours();
        let neighbours = ranks.into_iter().map(|rank| Neighbour {
            rank,
            ..Neighbour::default()
        });
        let mut edges = Edges {
            rank,
            mine,
            neighbours: neighbours.collect(),
        };
        const LISTED: &str = "all neighbours are in the list";
        for (index, slot) in mine.inbound.iter().enumerate() {
            let place = edges.place(slot.origin).expect(LISTED);
            edges.neighbours[place].inbound.push(index);
        }
        for (index, out) in mine.outbound.iter().enumerate() {
            let place = edges.place(out.target).expect(LISTED);
            edges.neighbours[place].outbound.push(index);
        }
        edges
    }

    /// The place of a rank in the list of neighbours, or the place where it would be.
    fn place(&self, rank: usize) -> Result<usize, usize> {
        visited();
        self.neighbours
            .binary_search_by_key(&rank, |neighbour| neighbour.rank)
    }

    /// A neighbour. Ranks that only say that they put to this one are neighbours, too.
    pub(super) fn of(&self, rank: usize) -> Option<&Neighbour> {
        let place = self.place(rank).ok()?;
        Some(&self.neighbours[place])
    }

    /// A key of an inbound slot that this rank has declared twice for one origin, and the origin.
    pub(super) fn inbound_twice(&self) -> Option<(usize, u64)> {
        let keys = |numbers: &[usize]| {
            Keys::of(numbers.iter().map(|index| self.mine.inbound[*index].key)).twice()
        };
        let twice = |each: &Neighbour| keys(&each.inbound).map(|key| (each.rank, key));
        self.neighbours.iter().find_map(twice)
    }

    /// A key of an outbound slot that this rank has declared twice for one target, and the target.
    pub(super) fn outbound_twice(&self) -> Option<(usize, u64)> {
        let keys = |numbers: &[usize]| {
            Keys::of(numbers.iter().map(|index| self.mine.outbound[*index].key)).twice()
        };
        let twice = |each: &Neighbour| keys(&each.outbound).map(|key| (each.rank, key));
        self.neighbours.iter().find_map(twice)
    }

    /// What this rank tells its neighbours.
    pub(super) fn letters(&self) -> Vec<Letter> {
        let mine = self.mine;
        let letter = |neighbour: &Neighbour| {
            let out = |index: &usize| PartOut {
                key: mine.outbound[*index].key,
                elements: mine.outbound[*index].elements.clone(),
                order: mine.outbound[*index].order.clone(),
            };
            let slot = |index: &usize| (mine.inbound[*index].key, mine.inbound[*index].len);
            let part = Part {
                outbound: neighbour.outbound.iter().map(out).collect(),
                inbound: neighbour.inbound.iter().map(slot).collect(),
                far: mine.far.binary_search(&neighbour.rank).is_ok(),
                land_up_to: mine.land_up_to,
                ring: mine.rings.binary_search(&neighbour.rank).is_ok(),
                readable: mine.readable,
            };
            Letter {
                rank: neighbour.rank,
                packet: Packet {
                    bytes: postcard::to_stdvec(&part).expect("plain data can be encoded"),
                    handles: Vec::new(),
                },
            }
        };
        self.neighbours.iter().map(letter).collect()
    }

    /// Takes what the neighbours have told this rank.
    pub(super) fn hear(&mut self, letters: Vec<Letter>) -> Result<(), Disagreement> {
        for letter in letters {
            let rank = letter.rank;
            let said: Part = postcard::from_bytes(&letter.packet.bytes).map_err(|error| {
                let reason = error.to_string();
                Disagreement::Unreadable { rank, reason }
            })?;
            let place = self.place(rank).unwrap_or_else(|place| {
                let neighbour = Neighbour {
                    rank,
                    ..Neighbour::default()
                };
                self.neighbours.insert(place, neighbour);
                place
            });
            let neighbour = &mut self.neighbours[place];
            neighbour.said_inbound = Keys::of(said.inbound.iter().map(|(key, _)| *key));
            neighbour.said_outbound = Keys::of(said.outbound.iter().map(|out| out.key));
            neighbour.said = said;
        }
        Ok(())
    }

    /// The ranks that this one puts to, in ascending order.
    pub(super) fn targets(&self) -> Vec<usize> {
        let targets = self.neighbours.iter();
        let targets = targets.filter(|neighbour| !neighbour.outbound.is_empty());
        targets.map(|neighbour| neighbour.rank).collect()
    }

    /// The ranks that put to this one, in ascending order.
    pub(super) fn origins(&self) -> Vec<usize> {
        let origins = self.neighbours.iter();
        let origins = origins.filter(|neighbour| !neighbour.said.outbound.is_empty());
        origins.map(|neighbour| neighbour.rank).collect()
    }

    /// Whether this rank and another reach each other through staged memory. It is enough if one of them needs it.
    pub(super) fn is_far(&self, other: usize) -> bool {
        self.mine.far.binary_search(&other).is_ok()
            || self.of(other).is_some_and(|other| other.said.far)
    }

    /// Whether the slots between this rank and another are rings.
    pub(super) fn is_ring(&self, other: usize) -> bool {
        self.mine.rings.binary_search(&other).is_ok()
            && self.of(other).is_some_and(|other| other.said.ring)
    }

    /// Whether an inbound slot has a landing. It must have bytes (an empty landing would always count as filled), in a
    /// multiple of four, and no more than both ends take for landings. It must be the only slot of its origin, because
    /// the landing stands for the origin's word, and the origin must be near.
    pub(super) fn has_landing(&self, slot: &Inbound) -> bool {
        let Some(origin) = self.of(slot.origin) else {
            return false;
        };
        let bytes = slot.len.saturating_mul(self.mine.terms.size);
        bytes != 0
            && bytes <= self.mine.land_up_to.min(origin.said.land_up_to)
            && bytes.is_multiple_of(4)
            && origin.inbound.len() == 1
            && !self.is_far(slot.origin)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Kind;
    use super::super::check::{check, check_own, differ};
    use super::super::describe::{Outbound, Purpose, Terms};
    use super::super::shape::Shape;
    use super::*;
    use crate::footprint::Footprint;
    use crate::ground::VISITS;
    use crate::world::Roster;

    pub(in super::super) fn terms(kind: Kind, buffers: u32) -> Terms {
        Terms {
            kind,
            layout: 1,
            size: 8,
            purpose: Purpose::Program,
            buffers,
            before: 0,
            staged: false,
            element: "f64".into(),
        }
    }

    /// Lets ranks with these descriptions meet, as they do when they open a window. Returns the edges of each.
    pub(in super::super) fn meet(all: &[Description]) -> Result<Vec<Edges<'_>>, Disagreement> {
        let compared = |rank: &usize| all[*rank].terms.encoded().0;
        if let Some(rank) = (0..all.len()).find(|rank| compared(rank) != compared(&0)) {
            return Err(differ((0, &all[0].terms), rank, &all[rank].terms));
        }
        let edges = all.iter().enumerate();
        let mut edges: Vec<_> = edges.map(|(rank, each)| Edges::new(rank, each)).collect();
        for each in &edges {
            let everyone = Roster::everyone(each.rank, all.len());
            all[each.rank].clone().in_job(&everyone)?;
            check_own(each)?;
        }
        let mut letters = vec![Vec::new(); all.len()];
        for each in &edges {
            for letter in each.letters() {
                letters[letter.rank].push(Letter {
                    rank: each.rank,
                    ..letter
                });
            }
        }
        for (each, letters) in edges.iter_mut().zip(letters) {
            each.hear(letters)?;
        }
        for each in &edges {
            check(each)?;
        }
        Ok(edges)
    }

    /// The description of a rank that puts to these ranks, and has as many slots from those.
    fn with(rank: usize, (targets, origins): (&[usize], &[usize]), kind: Kind) -> Description {
        let elements = Footprint::Range(rank..rank + 1);
        let slots = origins.iter().filter(|_| kind == Kind::Slot);
        Description {
            terms: terms(kind, 1),
            memory: 4096,
            inbound: slots
                .map(|origin| Inbound {
                    origin: *origin,
                    key: 5,
                    len: 1 + origin % 3,
                })
                .collect(),
            outbound: targets
                .iter()
                .map(|target| Outbound {
                    target: *target,
                    key: 5,
                    elements: elements.clone(),
                    order: None,
                    expected: None,
                })
                .collect(),
            far: Vec::new(),
            land_up_to: 16,
            rings: Vec::new(),
            readable: None,
            started_alone: false,
        }
    }

    #[test]
    fn what_is_found_is_what_a_search_finds() {
        let slot = |origin, key, len| Inbound { origin, key, len };
        let out = |target, key| Outbound {
            target,
            key,
            elements: Footprint::Range(0..0),
            order: None,
            expected: None,
        };
        let none = with(0, (&[], &[]), Kind::Slot);
        let one = Description {
            inbound: vec![slot(1, 9, 7), slot(0, 3, 1), slot(1, 2, 8), slot(1, 5, 9)],
            outbound: vec![out(1, 4), out(0, 3), out(1, 1)],
            ..none.clone()
        };
        let other = Description {
            inbound: vec![slot(0, 1, 5), slot(0, 4, 6)],
            outbound: vec![out(0, 5), out(0, 9), out(0, 2)],
            ..none
        };
        let all = [one, other];
        let edges = meet(&all).unwrap();
        for (rank, there) in [(0, 1), (1, 0), (0, 0)] {
            let neighbour = edges[rank].of(there).unwrap();
            let slots = all[there].inbound.iter().filter(|slot| slot.origin == rank);
            let slots: Vec<_> = slots.collect();
            for key in 0..11 {
                let place = slots.iter().position(|slot| slot.key == key);
                let expected = place.map(|place| (place, slots[place].len));
                assert_eq!(neighbour.slot(key), expected);
                let mut puts = all[there].outbound.iter();
                let puts = puts.any(|out| out.target == rank && out.key == key);
                assert_eq!(neighbour.puts_to(key), puts);
            }
        }
        assert_eq!(
            (edges[0].targets(), edges[0].origins()),
            (vec![0, 1], vec![0, 1])
        );
        assert_eq!((edges[1].targets(), edges[1].origins()), (vec![0], vec![0]));
        assert!(edges[1].of(1).is_none());
    }

    /// The looks at slots of one rank of many, the most of all ranks.
    fn looks(ranks: usize, neighbours: impl Fn(usize) -> Vec<usize>, kind: Kind) -> usize {
        let all = (0..ranks).map(|rank| {
            let near = neighbours(rank);
            with(rank, (&near, &near), kind)
        });
        let all: Vec<_> = all.collect();
        VISITS.set(0);
        for each in &meet(&all).unwrap() {
            assert_ne!(Shape::of(each).bytes, 0);
        }
        VISITS.get() / ranks
    }

    /// A rank looks at its own neighbours only, whatever the size of the job.
    #[test]
    fn a_rank_of_many_looks_at_its_neighbours() {
        for kind in [Kind::Slot, Kind::Range] {
            let ring = |ranks: usize| {
                let neighbours = |rank: usize| vec![(rank + 1) % ranks, (rank + ranks - 1) % ranks];
                looks(ranks, neighbours, kind)
            };
            let few = ring(8);
            assert!(few > 2);
            assert_eq!(few, ring(1024), "{kind:?}");
            let all = |ranks: usize| {
                let others = |rank| (0..ranks).filter(|other| *other != rank).collect();
                looks(ranks, others, kind)
            };
            // With 16 times as many neighbours it takes 16 times as many looks, times a logarithm.
            let (few, many) = (all(16), all(256));
            assert!(
                few > 16 && many < few * 16 * 3,
                "{few} and {many} looks at {kind:?}"
            );
        }
    }
}
