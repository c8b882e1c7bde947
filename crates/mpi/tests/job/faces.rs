//! Faces: every variant, verified.

use tidegate::host::World;
use tidegate_bench::faces::driver;
use tidegate_bench::faces::params::{Counts, Grid, Init, Params, Size, Variant};
use tidegate_bench::faces::variants::SetupOn;
use tidegate_bench::faces::verify::Verifier;
use tidegate_bench::progress::Progress;
use tidegate_bench::results::table::table;

pub(crate) fn all(world: World) {
    let grid = match world.size() {
        1 => [1, 1, 1],
        2 => [2, 1, 1],
        4 => [2, 2, 1],
        8 => [2, 2, 2],
        other => panic!("no grid of {other}"),
    };
    for (m, n, compute) in [([2, 3, 1], 3, true), ([1, 1, 2], 5, false)] {
        // Kernels neither own halves of MPI's windows, nor put by MPI.
        let by_kernels = |variant: &Variant| {
            use Variant::{Device, DeviceGraph, DevicePersistent};
            matches!(variant, Device | DeviceGraph | DevicePersistent)
        };
        let mut variants = Variant::ALL.to_vec();
        variants.retain(|variant| !by_kernels(variant));
        let params = Params {
            grid: Grid(grid),
            size: Size { m, n },
            counts: Counts {
                nk: 1,
                nj: 1,
                ni: 3,
            },
            init: Init::Global,
            compute,
            variants: variants.clone(),
        };
        let setup = SetupOn {
            world: &world,
            params: &params,
            verifier: &Verifier::new(&params, world.rank()).unwrap(),
            throttle: Default::default(),
            omit: None,
        };
        let rows = driver::rank(&setup, 1, &Progress::hidden(0)).unwrap();
        assert_eq!(rows.len(), variants.len());
        for row in &rows {
            assert!(
                !row.failed && row.verified == grid.iter().product::<usize>(),
                "{}",
                table(&rows)
            );
        }
    }
}
