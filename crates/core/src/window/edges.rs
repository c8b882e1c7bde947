//! The descriptions of all ranks, with indices that find quickly what one rank says about another.
//!
//! # Model
//!
//! If each of n ranks puts to all ranks, a window has n² slots. Each rank checks all of them against the descriptions
//! of their origins, and computes where all of them lie. Searching a list of n entries for each slot would take n³
//! steps. So each list is sorted once, unless it already is ([`Order`]), and each rank takes n² steps (times a
//! logarithm).

use std::cmp::Ordering;

use super::describe::{Description, Inbound, Outbound};
use crate::ground::visited;

/// The indices of a list's entries in the order of a key. Entries with equal keys keep their order. `None` if the list
/// itself is in that order.
struct Order(Option<Vec<u32>>);

/// The key of an entry; counts the look.
fn look<T, K>(list: &[T], by: &impl Fn(&T) -> K, index: usize) -> K {
    visited();
    by(&list[index])
}

impl Order {
    fn of<T, K: Ord>(list: &[T], by: impl Fn(&T) -> K) -> Self {
        if list.is_sorted_by_key(&by) {
            return Order(None);
        }
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by_key(|index| look(list, &by, *index));
        let narrow = |index| u32::try_from(index).expect("no description has so many entries");
        Order(Some(order.into_iter().map(narrow).collect()))
    }

    /// The first entry with the key `wanted`, and the number of entries that have it. `guess` is the index that is
    /// often right.
    fn find<T, K: Ord>(
        &self,
        list: &[T],
        by: impl Fn(&T) -> K,
        wanted: &K,
        guess: usize,
    ) -> Option<(usize, usize)> {
        let at = |place: usize| match &self.0 {
            Some(order) => order[place] as usize,
            None => place,
        };
        let compare = |place: usize| look(list, &by, at(place)).cmp(wanted);
        let is = |place: usize| place < list.len() && compare(place).is_eq();
        if is(guess) && !is(guess + 1) && (guess == 0 || !is(guess - 1)) {
            return Some((at(guess), 1));
        }
        let places = |end: fn(Ordering) -> bool| {
            let (mut low, mut high) = (0, list.len());
            while low < high {
                let middle = low.midpoint(high);
                if end(compare(middle)) {
                    low = middle + 1
                } else {
                    high = middle
                }
            }
            low
        };
        let (first, end) = (places(Ordering::is_lt), places(Ordering::is_le));
        (first < end).then(|| (at(first), end - first))
    }
}

/// The descriptions of all ranks.
pub(super) struct Edges<'a> {
    pub(super) all: &'a [Description],
    /// For each rank, its inbound slots by origin and key.
    inbound: Vec<Order>,
    /// For each rank, its outbound slots by target and key.
    outbound: Vec<Order>,
    /// For each rank, the ranks that it reaches by its NIC.
    far: Vec<Order>,
    /// For each rank, the ranks that put to it, in ascending order.
    origins: Vec<Vec<usize>>,
}

fn by_origin(slot: &Inbound) -> (usize, u64) {
    (slot.origin, slot.key)
}

fn by_target(out: &Outbound) -> (usize, u64) {
    (out.target, out.key)
}

impl<'a> Edges<'a> {
    /// Sorts the descriptions, which have not been checked yet.
    pub(super) fn new(all: &'a [Description]) -> Self {
        let mut origins = vec![Vec::new(); all.len()];
        for (rank, each) in all.iter().enumerate() {
            for out in &each.outbound {
                match origins.get_mut(out.target) {
                    Some(origins) if origins.last() != Some(&rank) => origins.push(rank),
                    _ => {}
                }
            }
        }
        Edges {
            all,
            inbound: all
                .iter()
                .map(|each| Order::of(&each.inbound, by_origin))
                .collect(),
            outbound: all
                .iter()
                .map(|each| Order::of(&each.outbound, by_target))
                .collect(),
            far: all
                .iter()
                .map(|each| Order::of(&each.far, |other| *other))
                .collect(),
            origins,
        }
    }

    /// The number of the slot that a rank has for an origin and a key. If it declares several, the first.
    pub(super) fn slot(&self, rank: usize, origin: usize, key: u64) -> Option<usize> {
        let (order, list) = (&self.inbound[rank], &self.all[rank].inbound);
        let found = order.find(list, by_origin, &(origin, key), origin);
        found.map(|(first, _)| first)
    }

    /// The number of the outbound slot that a rank has for a target and a key. If it declares several, the first.
    pub(super) fn outbound_slot(&self, rank: usize, target: usize, key: u64) -> Option<usize> {
        let (order, list) = (&self.outbound[rank], &self.all[rank].outbound);
        let found = order.find(list, by_target, &(target, key), target);
        found.map(|(first, _)| first)
    }

    /// The ranks that put to `rank`, in ascending order.
    pub(super) fn origins(&self, rank: usize) -> &[usize] {
        &self.origins[rank]
    }

    /// Whether two ranks reach each other through staged memory.
    pub(super) fn far(&self, a: usize, b: usize) -> bool {
        let says = |one: usize, other: usize| {
            let found = self.far[one].find(&self.all[one].far, |far| *far, &other, other);
            found.is_some()
        };
        says(a, b) || says(b, a)
    }

    /// Whether an inbound slot of `rank` has a landing. It must have bytes (an empty landing would always count as
    /// filled), in a multiple of four, and no more than both ends take for landings. It must be the only slot of its
    /// origin, because the landing stands for the origin's word, and the origin must be near.
    pub(super) fn has_landing(&self, rank: usize, slot: &Inbound) -> bool {
        let (mine, origin) = (&self.all[rank], &self.all[slot.origin]);
        let (order, list) = (&self.inbound[rank], &mine.inbound);
        let of_origin = order.find(list, |other| other.origin, &slot.origin, slot.origin);
        let bytes = slot.len.saturating_mul(mine.size);
        bytes != 0
            && bytes <= mine.land_up_to.min(origin.land_up_to)
            && bytes.is_multiple_of(4)
            && of_origin.is_some_and(|(_, many)| many == 1)
            && !self.far(rank, slot.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::check::check;
    use super::super::describe::Purpose;
    use super::super::shape::Shape;
    use super::*;
    use crate::footprint::Footprint;
    use crate::ground::VISITS;

    /// The descriptions of ranks that all put to all others. Half of the entries are not at the index that is guessed.
    fn all_to_all(ranks: usize, kind: Kind, far: bool) -> Vec<Description> {
        let slots = if kind == Kind::Slot { ranks } else { 0 };
        let describe = |rank: usize| Description {
            element: "f64".into(),
            layout: 1,
            size: 8,
            kind,
            buffers: 1,
            memory: ranks,
            purpose: Purpose::Program,
            inbound: (0..slots)
                .map(|at| (at * 7 + 3) % ranks)
                .filter(|origin| *origin != rank)
                .map(|origin| Inbound {
                    origin,
                    key: 5,
                    len: 1 + origin % 3,
                })
                .collect(),
            outbound: (0..ranks)
                .map(|at| (at * 5 + 1) % ranks)
                .filter(|target| *target != rank)
                .map(|target| Outbound {
                    target,
                    key: 5,
                    elements: Footprint::Range(rank..rank + 1),
                    expected: None,
                })
                .collect(),
            staged: far,
            far: (0..ranks).filter(|_| far).rev().collect(),
            land_up_to: 16,
            started_alone: false,
            before: 0,
        };
        (0..ranks).map(describe).collect()
    }

    #[test]
    fn what_is_found_is_what_a_search_finds() {
        for ranks in [1, 4, 11] {
            for far in [false, true] {
                let mut all = all_to_all(ranks, Kind::Slot, far);
                // There is a second slot of one origin, a slot that occurs twice, and one for a rank that does not
                // exist.
                let slot = |origin, key| Inbound {
                    origin,
                    key,
                    len: 9,
                };
                all[0].inbound.insert(0, slot(0, 6));
                all[ranks - 1].inbound.push(slot(0, 5));
                all[0].inbound.push(slot(ranks, 5));
                all[0].far.pop();
                let edges = Edges::new(&all);
                for rank in 0..ranks {
                    for other in 0..=ranks {
                        for key in 4..8 {
                            let slots = all[rank].inbound.iter();
                            let slot = slots
                                .clone()
                                .position(|s| (s.origin, s.key) == (other, key));
                            assert_eq!(edges.slot(rank, other, key), slot);
                            let mut outbound = all[rank].outbound.iter();
                            let slot =
                                outbound.position(|out| (out.target, out.key) == (other, key));
                            assert_eq!(edges.outbound_slot(rank, other, key), slot);
                        }
                        if other < ranks {
                            let said = [(rank, other), (other, rank)];
                            let says = said
                                .iter()
                                .any(|(one, other)| all[*one].far.contains(other));
                            assert_eq!(edges.far(rank, other), says);
                        }
                    }
                    let mut expected: Vec<_> = (0..ranks)
                        .filter(|other| all[*other].outbound.iter().any(|out| out.target == rank))
                        .collect();
                    expected.dedup();
                    assert_eq!(edges.origins(rank), expected);
                }
            }
        }
    }

    /// With 16 times as many ranks it takes 256 times as many looks at entries, times a logarithm. The cube would be
    /// 4096.
    #[test]
    fn a_window_of_all_with_all_takes_the_square_of_the_ranks() {
        let looks = |ranks: usize, kind, far| {
            let all = all_to_all(ranks, kind, far);
            VISITS.set(0);
            let edges = Edges::new(&all);
            check(&edges).unwrap();
            let shapes = (0..ranks).map(|rank| Shape::of(&edges, rank).bytes);
            assert_ne!(shapes.sum::<usize>(), 0);
            VISITS.get()
        };
        for (kind, far) in [
            (Kind::Slot, false),
            (Kind::Slot, true),
            (Kind::Range, false),
        ] {
            let (few, many) = (looks(16, kind, far), looks(256, kind, far));
            assert!(few > 16 * 16, "{few} looks at {kind:?}, {far}");
            assert!(
                many < few * 256 * 3,
                "{few} and {many} looks at {kind:?}, {far}"
            );
        }
    }
}
