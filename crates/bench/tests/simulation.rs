//! All ranks of a grid in one process, with plain copies as messages, against both references.

use tidegate_bench::faces::kernels::{self, Packed, Slots, SlotsBy, Values};
use tidegate_bench::faces::layout::{Direction, Geometry};
use tidegate_bench::faces::params::{Counts, Grid, Init, Params, Size, Variant};
use tidegate_bench::faces::verify::{Verdict, Verifier};

/// How the messages are handed to `unpack`.
type Unpack = fn(&Geometry, &mut [f64], &[f64]);

struct World {
    ranks: Vec<Rank>,
    verifiers: Vec<Verifier>,
    init: Init,
    compute: bool,
}

struct Rank {
    geometry: Geometry,
    u: Vec<f64>,
    sent: Vec<f64>,
    received: Vec<f64>,
}

fn plain(geometry: &Geometry, u: &mut [f64], received: &[f64]) {
    kernels::unpack(geometry, u, &Packed::new(geometry, received));
}

impl World {
    fn new(
        grid: [usize; 3],
        m: [usize; 3],
        n: usize,
        shares: u64,
        init: Init,
        compute: bool,
    ) -> World {
        let (grid, size) = (Grid(grid), Size { m, n });
        let counts = Counts {
            nk: 1,
            nj: 1,
            ni: shares,
        };
        let params = Params {
            grid,
            size,
            counts,
            init,
            compute,
            variants: vec![Variant::St],
        };
        let verifiers = Verifier::all(&params).unwrap();
        let ranks = verifiers
            .iter()
            .map(|v| {
                let geometry = v.geometry().clone();
                let packed = vec![0.0; geometry.packed_len()];
                Rank {
                    u: vec![f64::NAN; geometry.len()],
                    sent: packed.clone(),
                    received: packed,
                    geometry,
                }
            })
            .collect();
        World {
            ranks,
            verifiers,
            init,
            compute,
        }
    }

    fn run(&mut self, shares: u64, unpack: Unpack) {
        for rank in &mut self.ranks {
            kernels::init(&rank.geometry, self.init, rank.u.as_mut_slice());
        }
        for _ in 0..shares {
            for rank in &mut self.ranks {
                kernels::pack(&rank.geometry, rank.u.as_slice(), &mut rank.sent);
                if self.compute {
                    kernels::compute(&rank.geometry, rank.u.as_mut_slice());
                }
            }
            self.exchange();
            for rank in &mut self.ranks {
                unpack(&rank.geometry, &mut rank.u, &rank.received);
            }
        }
    }

    fn exchange(&mut self) {
        for rank in 0..self.ranks.len() {
            let neighbours: Vec<_> = self.ranks[rank].geometry.neighbours().collect();
            for (d, to) in neighbours {
                let from = self.ranks[rank].geometry.slot(d);
                let to_slot = self.ranks[to].geometry.slot(d.opposite());
                let message = self.ranks[rank].sent[from].to_vec();
                self.ranks[to].received[to_slot].copy_from_slice(&message);
            }
        }
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.ranks
            .iter()
            .zip(&self.verifiers)
            .map(|(rank, v)| v.check(&rank.u))
            .collect()
    }
}

fn case(grid: [usize; 3], m: [usize; 3], n: usize, shares: u64) {
    for init in [Init::Same, Init::Global] {
        for compute in [false, true] {
            let mut world = World::new(grid, m, n, shares, init, compute);
            assert!(world.verifiers.iter().all(Verifier::simulates));
            world.run(shares, plain);
            for (rank, verdict) in world.verdicts().iter().enumerate() {
                assert!(
                    verdict.passed(),
                    "rank {rank} of {grid:?}, {m:?} elements, n = {n}, {shares} shares, {init}, compute {compute}: {verdict}"
                );
            }
            assert_bitwise_consistent(&world);
        }
    }
}

/// Points that touch on two ranks are equal bit for bit: both packed now, each is what the other
/// one has.
fn assert_bitwise_consistent(world: &World) {
    for rank in &world.ranks {
        for (d, other) in rank.geometry.neighbours() {
            let other = &world.ranks[other];
            let mine = rank
                .geometry
                .strided(d)
                .indices()
                .into_iter()
                .map(|k| rank.u[k].to_bits());
            let theirs = other
                .geometry
                .strided(d.opposite())
                .indices()
                .into_iter()
                .map(|k| other.u[k].to_bits());
            assert!(
                mine.eq(theirs),
                "rank {} differs from its neighbour at {d}",
                rank.geometry.rank()
            );
        }
    }
}

const GRIDS: [[usize; 3]; 5] = [[1, 1, 1], [2, 1, 1], [2, 2, 2], [3, 3, 3], [3, 2, 1]];

#[test]
fn three_points_a_side() {
    for grid in GRIDS {
        for m in [[2, 2, 2], [2, 3, 4], [5, 2, 3]] {
            for shares in [1, 2, 7] {
                case(grid, m, 3, shares);
            }
        }
    }
}

#[test]
fn other_numbers_of_points() {
    for grid in GRIDS {
        case(grid, [3, 2, 2], 4, 3);
        case(grid, [2, 2, 3], 5, 2);
    }
}

#[test]
fn ten_points_a_side() {
    for grid in GRIDS {
        case(grid, [2, 2, 2], 10, 2);
    }
    case([3, 2, 1], [5, 4, 3], 10, 3);
}

#[test]
fn one_element_a_dimension() {
    case([1, 1, 1], [1, 1, 1], 3, 2);
    case([3, 2, 2], [1, 1, 1], 4, 3);
    case([2, 1, 3], [1, 4, 2], 3, 3);
}

#[test]
fn as_many_shares_as_stay_finite() {
    for (grid, init) in [([2, 2, 2], Init::Same), ([3, 2, 1], Init::Global)] {
        let size = Size { m: [2, 3, 2], n: 3 };
        let limit = tidegate_bench::faces::params::max_shares(Grid(grid), size, init);
        let mut world = World::new(grid, size.m, size.n, limit, init, true);
        world.run(limit, plain);
        for verdict in world.verdicts() {
            assert!(verdict.passed(), "{verdict}");
        }
        // One more, and the largest value is not finite: the limit is tight, and the failure is
        // seen.
        world.run(limit + 1, plain);
        assert!(
            world
                .verdicts()
                .iter()
                .any(|v| v.non_finite > 0 && !v.passed())
        );
    }
}

/// Takes 300 MB, and minutes without optimisation.
#[test]
#[ignore = "deep: takes minutes if it is not optimised"]
fn deep_the_published_small_size() {
    let Size { m, n } = Size::SMALL;
    let shares = Counts::SMALL.ni;
    for (init, compute) in [
        (Init::Same, true),
        (Init::Global, true),
        (Init::Global, false),
    ] {
        let mut world = World::new([2, 2, 2], m, n, shares, init, compute);
        world.run(shares, plain);
        for verdict in world.verdicts() {
            println!("{init}, compute {compute}: {verdict}");
            assert!(verdict.passed(), "{verdict}");
        }
    }
}

#[test]
fn slots_as_single_slices_give_the_same() {
    fn separate(geometry: &Geometry, u: &mut [f64], received: &[f64]) {
        let slots =
            Direction::table(|d| geometry.neighbour(d).map(|_| &received[geometry.slot(d)]));
        kernels::unpack(geometry, u, &slots);
    }
    fn by_function(geometry: &Geometry, u: &mut [f64], received: &[f64]) {
        kernels::unpack(geometry, u, &SlotsBy(|d| &received[geometry.slot(d)]));
    }
    for unpack in [separate as Unpack, by_function] {
        let mut world = World::new([3, 2, 1], [2, 3, 2], 4, 3, Init::Global, false);
        world.run(3, unpack);
        assert!(world.verdicts().iter().all(Verdict::passed));
    }
}

/// Every one of these mistakes must be seen.
mod broken {
    use super::*;

    fn caught(init: Init, unpack: Unpack) -> bool {
        let mut world = World::new([3, 3, 3], [2, 3, 2], 4, 3, init, false);
        world.run(3, unpack);
        world.verdicts().iter().any(|v| !v.passed())
    }

    /// Messages read through a mistake.
    struct Through<'a, F>(&'a Geometry, &'a [f64], F);

    impl<F: Fn(Direction) -> Option<Direction>> Slots for Through<'_, F> {
        type Slot<'b>
            = Message<'b>
        where
            Self: 'b;
        fn slot(&self, d: Direction) -> Message<'_> {
            Message((self.2)(d).map(|d| &self.1[self.0.slot(d)]))
        }
    }

    struct Message<'a>(Option<&'a [f64]>);

    impl Values for Message<'_> {
        fn get(&self, index: usize) -> f64 {
            self.0.map_or(0.0, |values| values[index])
        }
    }

    #[test]
    fn a_corner_that_is_forgotten() {
        let unpack: Unpack = |g, u, received| {
            let forget = |d: Direction| (d.offset() != [1, 1, 1]).then_some(d);
            kernels::unpack(g, u, &Through(g, received, forget));
        };
        assert!(caught(Init::Same, unpack) && caught(Init::Global, unpack));
    }

    #[test]
    fn an_edge_from_the_other_side() {
        // With the same values on every rank some of these look right: that is what `Init::Global`
        // is for.
        let unpack: Unpack = |g, u, received| {
            let swap = |d: Direction| {
                Some(if d.offset() == [0, 1, 1] {
                    d.opposite()
                } else {
                    d
                })
            };
            kernels::unpack(g, u, &Through(g, received, swap));
        };
        assert!(caught(Init::Global, unpack));
    }

    #[test]
    fn a_piece_that_is_left_out() {
        let unpack: Unpack = |g, u, received| {
            for d in Direction::all().filter(|d| d.offset() != [0, -1, 1]) {
                kernels::unpack_piece(g, u, &Packed::new(g, received), d);
            }
        };
        assert!(caught(Init::Same, unpack) && caught(Init::Global, unpack));
    }

    #[test]
    fn a_share_that_reads_stale_messages() {
        let mut world = World::new([2, 1, 1], [2, 2, 2], 3, 4, Init::Same, false);
        world.run(3, plain);
        for rank in &mut world.ranks {
            // The fourth share without an exchange.
            kernels::unpack(
                &rank.geometry,
                rank.u.as_mut_slice(),
                &Packed::new(&rank.geometry, &rank.received),
            );
        }
        assert!(world.verdicts().iter().all(|v| !v.passed()));
    }

    #[test]
    fn one_copy_that_is_not_written() {
        let unpack: Unpack = |g, u, received| {
            // The second of two copies on the lower x face, between two elements along y.
            let k = g.index([0, 0, 1], [0, 1, 0]);
            let old = u[k];
            plain(g, u, received);
            u[k] = old;
        };
        assert!(caught(Init::Same, unpack));
    }

    #[test]
    fn blocks_in_the_wrong_place() {
        let mut world = World::new([2, 1, 1], [2, 2, 2], 3, 2, Init::Global, false);
        world.run(2, plain);
        let [a, b] = &mut world.ranks[..] else {
            unreachable!()
        };
        std::mem::swap(&mut a.u, &mut b.u);
        assert!(world.verdicts().iter().all(|v| !v.passed()));
    }
}
