//! How long the CPU kernels take, on one core: `cargo bench -p tidegate-bench --bench kernels`.

use std::time::{Duration, Instant};
use tidegate_bench::faces::kernels::{self, Packed};
use tidegate_bench::faces::layout::Geometry;
use tidegate_bench::faces::params::{Grid, Init, Size};
use tidegate_bench::results::stats::median;

fn time(mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (begin.elapsed() < Duration::from_millis(600) && times.len() < 2000) {
        let start = Instant::now();
        work();
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    median(&mut times).unwrap_or(f64::NAN)
}

fn main() {
    println!("{:<8} {:>10} {:>10} {:>10} {:>10}   (us, median)", "size", "init", "pack", "compute", "unpack");
    // A corner of 2x2x2 has 7 neighbours, the middle of 3x3x3 has 26.
    for (grid, rank) in [([2, 2, 2], 0), ([3, 3, 3], 13)] {
        for size in [Size::DESK, Size::SMALL] {
            let g = Geometry::new(Grid(grid), size, rank).expect("a valid geometry");
            let mut u = vec![0.0; g.len()];
            let mut packed = vec![0.0; g.packed_len()];
            let init = time(|| kernels::init(&g, Init::Same, u.as_mut_slice()));
            let pack = time(|| kernels::pack(&g, u.as_slice(), &mut packed));
            // Zeros, so that no value grows beyond what is finite.
            u.fill(0.0);
            packed.fill(0.0);
            let compute = time(|| kernels::compute(&g, u.as_mut_slice()));
            let unpack = time(|| kernels::unpack(&g, u.as_mut_slice(), &Packed::new(&g, &packed)));
            let name = format!("{size} {}", g.neighbours().count());
            println!("{name:<8} {init:>10.1} {pack:>10.1} {compute:>10.1} {unpack:>10.1}");
        }
    }
}
