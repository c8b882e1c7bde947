//! Properties of the layout and of what the kernels touch, for arbitrary grids and sizes.

use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use tidegate_bench::faces::kernels::{self, Packed, Points, Values};
use tidegate_bench::faces::layout::{Direction, Geometry, Kind};
use tidegate_bench::faces::params::{Grid, Init, Size};

/// A block that notes what is read and written.
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
}
