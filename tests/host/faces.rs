//! Every variant of Faces gives the right result on every rank, for every grid and size, with and without compute. And
//! a wrong result is noticed. Ranks are threads here.

use tidegate::host::World;
use tidegate_bench::faces::driver;
use tidegate_bench::faces::layout::Direction;
use tidegate_bench::faces::params::{Counts, Grid, Init, Params, Size, Variant};
use tidegate_bench::faces::variants::Setup;
use tidegate_bench::faces::verify::Verifier;
use tidegate_bench::progress::Progress;
use tidegate_bench::results::{Row, exit_code, table::table};

/// An odd count of shares, so that runs begin with either of two buffers. Small blocks are built twice, with their
/// windows.
fn counts(n: usize) -> Counts {
    Counts {
        nk: if n > 3 { 1 } else { 2 },
        nj: 1,
        ni: 3,
    }
}

/// Runs all variants. One rank may leave a direction out of its unpack kernel. Returns the rows that rank 0 prints.
fn run(params: &Params, omit: Option<(usize, Direction)>) -> Vec<Row> {
    let verifiers = Verifier::all(params).unwrap();
    let ranks = World::local(params.grid.ranks(), |world| {
        let setup = Setup {
            world: &world,
            params,
            verifier: &verifiers[world.rank()],
            throttle: Default::default(),
            omit: omit.filter(|(rank, _)| *rank == world.rank()).map(|o| o.1),
        };
        driver::rank(&setup, 1, &Progress::hidden(0)).map_err(|error| error.to_string())
    });
    let mut ranks = ranks.into_iter().map(Result::unwrap);
    let rows = ranks.next().unwrap();
    assert!(ranks.all(|other| other == rows), "all ranks know the same");
    rows
}

fn params(grid: [usize; 3], m: [usize; 3], n: usize, compute: bool) -> Params {
    Params {
        grid: Grid(grid),
        size: Size { m, n },
        counts: counts(n),
        init: Init::Global,
        compute,
        variants: Variant::ALL.to_vec(),
    }
}

fn case(grid: [usize; 3], m: [usize; 3], n: usize) {
    for compute in [false, true] {
        let params = params(grid, m, n, compute);
        let rows = run(&params, None);
        assert_eq!(rows.len(), Variant::ALL.len());
        for row in &rows {
            assert!(
                !row.failed && row.verified == params.grid.ranks(),
                "{grid:?}, {m:?} elements, n = {n}, compute {compute}:\n{}",
                table(&rows)
            );
        }
        assert_eq!(exit_code(&rows), 0);
    }
}

#[test]
fn one_rank() {
    case([1, 1, 1], [2, 3, 4], 3);
    case([1, 1, 1], [5, 2, 3], 10);
}

#[test]
fn two_ranks() {
    case([2, 1, 1], [4, 5, 2], 3);
    case([2, 1, 1], [3, 2, 4], 10);
}

#[test]
fn eight_ranks() {
    case([2, 2, 2], [3, 4, 5], 3);
    case([2, 2, 2], [2, 3, 2], 10);
}

#[test]
fn all_26_neighbours() {
    case([3, 3, 3], [2, 3, 2], 3);
    case([3, 3, 3], [2, 2, 2], 10);
}

#[test]
fn a_flat_grid() {
    case([3, 2, 1], [5, 4, 3], 3);
    case([3, 2, 1], [2, 5, 3], 10);
}

#[test]
fn a_broken_unpack_fails_every_row() {
    for compute in [false, true] {
        let params = params([2, 2, 1], [2, 3, 2], 3, compute);
        // Rank 0 forgets the elements that it shares with its neighbour at +x.
        let face = Direction::from_offset([1, 0, 0]).unwrap();
        let rows = run(&params, Some((0, face)));
        for row in &rows {
            assert!(row.failed, "{} went unnoticed", row.variant);
            assert!(row.failure.as_ref().unwrap().contains("are wrong"));
            assert!(row.verified < 4);
        }
        assert_eq!(exit_code(&rows), 1);
        let shown = table(&rows);
        assert_eq!(
            shown.matches("FAILED").count(),
            2 * rows.len(),
            "in the row and below the table:\n{shown}"
        );
    }
}
