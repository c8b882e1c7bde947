//! Properties of the layout, and of the points that the kernels touch, for arbitrary grids and sizes.

use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use tidegate_bench::faces::kernels::{self, Packed, Points, SlotsBy, Values};
use tidegate_bench::faces::layout::{Direction, Geometry, Kind};
use tidegate_bench::faces::params::{Grid, Init, Size};

/// A block that notes every read and write.
struct Noted {
    values: Vec<f64>,
    read: RefCell<BTreeSet<usize>>,
    written: BTreeSet<usize>,
}

impl Noted {
    fn new(values: Vec<f64>) -> Noted {
        Noted {
            values,
            read: RefCell::default(),
            written: BTreeSet::new(),
        }
    }
}

impl Values for Noted {
    fn get(&self, index: usize) -> f64 {
        self.read.borrow_mut().insert(index);
        self.values[index]
    }
}

impl Points for Noted {
    fn set(&mut self, index: usize, value: f64) {
        self.written.insert(index);
        self.values[index] = value;
    }
}

/// A message that has only `get`.
struct Bare<'a>(&'a [f64]);

impl Values for Bare<'_> {
    fn get(&self, index: usize) -> f64 {
        self.0[index]
    }
}

/// The order of sums that the kernels promise: all copies of a point, in pairs along x, those sums along y, those along z.
struct Definition<'a> {
    geometry: &'a Geometry,
    u: &'a [f64],
    received: &'a [f64],
    /// Where a point of the block is in each message that it is part of.
    places: Vec<HashMap<usize, usize>>,
}

impl Definition<'_> {
    fn new<'a>(geometry: &'a Geometry, u: &'a [f64], received: &'a [f64]) -> Definition<'a> {
        let place = |d| {
            let indices = geometry.strided(d).indices();
            indices.into_iter().zip(0..).collect()
        };
        let places = Direction::all().map(place).collect();
        Definition {
            geometry,
            u,
            received,
            places,
        }
    }

    /// The sum over the copies in dimensions up to `d`, of the copy at point `i` of element `j` that the neighbour at
    /// `side` has.
    fn sum(&self, d: usize, i: [usize; 3], j: [usize; 3], side: [i8; 3]) -> f64 {
        let g = self.geometry;
        let Some(below) = d.checked_sub(1) else {
            let index = g.index(i, j);
            return match Direction::from_offset(side) {
                None => self.u[index],
                Some(d) => self.received[g.slot(d)][self.places[d.index()][&index]],
            };
        };
        let (n, m) = (g.size().n, g.size().m[below]);
        let at = |i_d: usize, j_d: usize, side_d: i8| {
            let (mut i, mut j, mut side) = (i, j, side);
            (i[below], j[below], side[below]) = (i_d, j_d, side_d);
            self.sum(below, i, j, side)
        };
        let present = |side_d: i8| {
            let mut side = [0; 3];
            side[below] = side_d;
            Direction::from_offset(side).is_some_and(|d| g.neighbour(d).is_some())
        };
        let (i, j) = (i[below], j[below]);
        match (i, j) {
            (0, 0) if present(-1) => at(i, j, 0) + at(i, j, -1),
            (0, 0) => at(i, j, 0),
            (0, _) => at(n - 1, j - 1, 0) + at(0, j, 0),
            _ if i < n - 1 => at(i, j, 0),
            _ if j < m - 1 => at(n - 1, j, 0) + at(0, j + 1, 0),
            _ if present(1) => at(i, j, 0) + at(i, j, 1),
            _ => at(i, j, 0),
        }
    }

    /// The block afterwards.
    fn block(&self, surface: bool) -> Vec<u64> {
        let value = |k: usize| {
            let (i, j) = self.geometry.coordinates(k);
            match self.geometry.is_surface(k) == surface {
                true => self.sum(3, i, j, [0; 3]),
                false => self.u[k],
            }
        };
        (0..self.geometry.len())
            .map(|k| value(k).to_bits())
            .collect()
    }
}

/// Values of many magnitudes and both signs, so that the order of summation shows.
fn noise(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut value = || (next() as i64 as f64) * f64::from((next() % 24) as u32).exp2();
    (0..len).map(|_| value()).collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Blocks whose surface is walked in one go, and larger ones.
fn sizes_of_both_sorts() -> impl Strategy<Value = Geometry> {
    let m = || 1usize..6;
    ([1usize..4, 1..4, 1..4], [m(), m(), m()], 3usize..9).prop_flat_map(|(grid, m, n)| {
        let grid = Grid(grid);
        (0..grid.ranks()).prop_map(move |rank| Geometry::new(grid, Size { m, n }, rank).unwrap())
    })
}

fn geometries() -> impl Strategy<Value = Geometry> {
    let side = || 1usize..4;
    (
        [side(), side(), side()],
        [1usize..5, 1usize..5, 1usize..5],
        3usize..6,
    )
        .prop_flat_map(|(grid, m, n)| {
            let grid = Grid(grid);
            (0..grid.ranks())
                .prop_map(move |rank| Geometry::new(grid, Size { m, n }, rank).unwrap())
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn indices_round_trip(g in geometries()) {
        for index in 0..g.len() {
            let (i, j) = g.coordinates(index);
            prop_assert_eq!(g.index(i, j), index);
        }
    }

    #[test]
    fn surface_and_interior_are_a_partition(g in geometries()) {
        let mut seen = vec![0u8; g.len()];
        for (part, mark) in [(g.surface_ranges().collect::<Vec<_>>(), 1), (g.interior_ranges().collect(), 2)] {
            prop_assert!(part.iter().all(|r| r.start < r.end && r.end <= g.len()));
            prop_assert!(part.windows(2).all(|w| w[0].end < w[1].start), "ascending, apart");
            for k in part.into_iter().flatten() {
                prop_assert_eq!(seen[k], 0);
                seen[k] = mark;
            }
        }
        for (k, mark) in seen.into_iter().enumerate() {
            prop_assert_eq!(mark, if g.is_surface(k) { 1 } else { 2 });
        }
    }

    #[test]
    fn messages_are_what_touches_the_neighbour(g in geometries()) {
        let mut surface = BTreeSet::new();
        for d in Direction::all() {
            let indices = g.strided(d).indices();
            prop_assert_eq!(indices.len(), g.message_len(d));
            prop_assert!(indices.windows(2).all(|w| w[0] < w[1]), "in the order of the block");
            let (side, size) = (d.offset(), g.size());
            let touches = |k: usize| {
                let (i, j) = g.coordinates(k);
                (0..3).all(|c| match side[c] {
                    -1 => i[c] == 0 && j[c] == 0,
                    1 => i[c] == size.n - 1 && j[c] == size.m[c] - 1,
                    _ => true,
                })
            };
            prop_assert_eq!(&indices, &(0..g.len()).filter(|&k| touches(k)).collect::<Vec<_>>());
            if d.kind() == Kind::Face {
                surface.extend(indices);
            }
        }
        prop_assert!(surface.into_iter().eq(g.surface_ranges().flatten()));
    }

    #[test]
    fn packing_is_iterating_over_strides(g in geometries()) {
        let mut u = vec![0.0; g.len()];
        kernels::init(&g, Init::Global, u.as_mut_slice());
        let mut packed = vec![f64::NAN; g.packed_len()];
        kernels::pack(&g, u.as_slice(), &mut packed);
        // Through an accessor that has only `get`.
        let noted = Noted::new(u.clone());
        let mut again = vec![f64::NAN; g.packed_len()];
        kernels::pack(&g, &noted, &mut again);
        prop_assert!(packed.iter().map(|v| v.to_bits()).eq(again.iter().map(|v| v.to_bits())));
        prop_assert!(noted.read.into_inner().into_iter().all(|k| g.is_surface(k)));
        for d in Direction::all() {
            let slot = &packed[g.slot(d)];
            if g.neighbour(d).is_some() {
                let values: Vec<f64> = g.strided(d).indices().into_iter().map(|k| u[k]).collect();
                prop_assert_eq!(slot, &values[..]);
            } else {
                prop_assert!(slot.iter().all(|v| v.is_nan()), "no neighbour, not written");
            }
        }
    }

    #[test]
    fn compute_and_unpack_keep_to_their_parts(g in geometries()) {
        let mut u = vec![0.0; g.len()];
        kernels::init(&g, Init::Same, u.as_mut_slice());

        let mut noted = Noted::new(u.clone());
        kernels::compute(&g, &mut noted);
        let read = noted.read.take();
        prop_assert!(read.iter().all(|&k| !g.is_surface(k)));
        prop_assert_eq!(&read, &noted.written);
        // Exactly those that elements share.
        let shared = |k: usize| {
            let (i, j) = g.coordinates(k);
            (0..3).any(|c| (i[c] == 0 && j[c] > 0) || (i[c] == g.size().n - 1 && j[c] + 1 < g.size().m[c]))
        };
        prop_assert!(noted.written.into_iter().eq((0..g.len()).filter(|&k| !g.is_surface(k) && shared(k))));

        let received = vec![1.0; g.packed_len()];
        let mut noted = Noted::new(u);
        kernels::unpack(&g, &mut noted, &Packed::new(&g, &received));
        let read = noted.read.take();
        prop_assert!(read.iter().all(|&k| g.is_surface(k)));
        prop_assert_eq!(read, noted.written);
    }

    #[test]
    fn pieces_of_unpack_are_independent(g in geometries(), seed in 0usize..26) {
        let received = vec![1.0; g.packed_len()];
        let mut forward = vec![0.0; g.len()];
        kernels::init(&g, Init::Same, forward.as_mut_slice());
        let mut rotated = forward.clone();
        kernels::unpack(&g, forward.as_mut_slice(), &Packed::new(&g, &received));
        let mut written = BTreeSet::new();
        for k in (0..26).map(|k| (k * 7 + seed) % 26) {
            let d = Direction::from_index(k).unwrap();
            let mut noted = Noted::new(rotated);
            kernels::unpack_piece(&g, &mut noted, &Packed::new(&g, &received), d);
            prop_assert!(noted.written.iter().all(|&k| written.insert(k)), "no point in two pieces");
            rotated = noted.values;
        }
        prop_assert_eq!(forward, rotated);
    }

    #[test]
    fn sums_are_those_of_the_definition_bit_for_bit(g in sizes_of_both_sorts(), seed: u64) {
        let before = noise(g.len(), seed);
        let received = noise(g.packed_len(), !seed);
        let definition = Definition::new(&g, &before, &received);

        let expected = definition.block(true);
        let packed = Packed::new(&g, &received);
        let mut u = before.clone();
        kernels::unpack(&g, u.as_mut_slice(), &packed);
        prop_assert!(bits(&u) == expected, "slices");
        let mut noted = Noted::new(before.clone());
        kernels::unpack(&g, &mut noted, &packed);
        prop_assert!(bits(&noted.values) == expected, "a view of the block");
        let mut u = before.clone();
        kernels::unpack(&g, u.as_mut_slice(), &SlotsBy(|d| Bare(&received[g.slot(d)])));
        prop_assert!(bits(&u) == expected, "views of the messages");
        let mut u = before.clone();
        for d in Direction::all().rev() {
            kernels::unpack_piece(&g, u.as_mut_slice(), &packed, d);
        }
        prop_assert!(bits(&u) == expected, "piece by piece");

        let expected = definition.block(false);
        let mut u = before.clone();
        kernels::compute(&g, u.as_mut_slice());
        prop_assert!(bits(&u) == expected, "compute over slices");
        let mut noted = Noted::new(before.clone());
        kernels::compute(&g, &mut noted);
        prop_assert!(bits(&noted.values) == expected, "compute over a view");
    }
}
