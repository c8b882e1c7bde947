//! How long the CPU kernels take, on one core: `cargo bench -p tidegate-bench --bench kernels`;
//! `-- desk` takes only those cases whose names contain that.
//!
//! Over a slice, and over two views through which two threads could work on one block: one of
//! atomic words, and one that looks every index up in the bit set of a part.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tidegate_bench::faces::kernels::{self, Packed, Points, Values};
use tidegate_bench::faces::layout::Geometry;
use tidegate_bench::faces::params::{Grid, Init, Size};
use tidegate_bench::results::stats::median;

/// A block of atomic words.
struct Atomic(Vec<AtomicU64>);

impl Values for Atomic {
    fn get(&self, index: usize) -> f64 {
        f64::from_bits(self.0[index].load(Relaxed))
    }
}

impl Points for Atomic {
    fn set(&mut self, index: usize, value: f64) {
        self.0[index].store(value.to_bits(), Relaxed);
    }
}

/// A part of a block: indices that are not in the set cannot be reached.
struct Part {
    values: Vec<f64>,
    set: Vec<u64>,
}

impl Part {
    fn new(len: usize, indices: impl Iterator<Item = usize>) -> Part {
        let mut set = vec![0; len.div_ceil(64)];
        indices.for_each(|k| set[k / 64] |= 1 << (k % 64));
        // Zeros that were never written share one page, which would be too good to be true.
        let mut values = vec![1.0; len];
        values.fill(0.0);
        Part { values, set }
    }

    fn check(&self, index: usize) {
        assert!(
            self.set[index / 64] >> (index % 64) & 1 == 1,
            "index {index} is not in this part"
        );
    }
}

impl Values for Part {
    fn get(&self, index: usize) -> f64 {
        self.check(index);
        self.values[index]
    }
}

impl Points for Part {
    fn set(&mut self, index: usize, value: f64) {
        self.check(index);
        self.values[index] = value;
    }
}

/// The median of samples of at least 20 us each, so that the clock does not count.
fn time(mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let (mut times, mut repeats) = (Vec::new(), 1);
    while times.len() < 5 || (begin.elapsed() < Duration::from_millis(200) && times.len() < 2000) {
        let start = Instant::now();
        (0..repeats).for_each(|_| work());
        let took = start.elapsed();
        if took < Duration::from_micros(20) {
            repeats *= 2;
        } else {
            times.push(took.as_secs_f64() * 1e6 / f64::from(repeats));
        }
    }
    median(&mut times).unwrap_or(f64::NAN)
}

/// Pack, compute and unpack, over views of the surface and of the interior. Their values are zeros,
/// so that all stay finite.
fn kernels<P: Points + ?Sized>(g: &Geometry, surface: &mut P, interior: &mut P) -> [f64; 3] {
    let mut packed = vec![0.0; g.packed_len()];
    let pack = time(|| kernels::pack(g, &*surface, &mut packed));
    let compute = time(|| kernels::compute(g, interior));
    let unpack = time(|| kernels::unpack(g, surface, &Packed::new(g, &packed)));
    [pack, compute, unpack]
}

fn main() {
    // `cargo test --all-targets` starts benchmarks too, without this.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("us, median                     init       pack    compute     unpack");
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    // An end of 2x1x1 has 1 neighbour, a corner of 2x2x2 has 7, the middle of 3x3x3 has 26.
    let middle = Size { m: [8; 3], n: 8 };
    for size in [Size::DESK, middle, Size::SMALL] {
        for (grid, rank) in [([2, 1, 1], 0), ([2, 2, 2], 0), ([3, 3, 3], 13)] {
            let g = Geometry::new(Grid(grid), size, rank).expect("a valid geometry");
            let case = format!("{size}, {} neighbours", g.neighbours().count());
            if !wanted.is_empty() && !wanted.iter().any(|text| case.contains(text)) {
                continue;
            }
            let mut u = vec![0.0; g.len()];
            let init = time(|| kernels::init(&g, Init::Same, u.as_mut_slice()));
            u.fill(0.0);
            let mut other = u.clone();
            let slice = kernels(&g, u.as_mut_slice(), other.as_mut_slice());
            drop((u, other));
            let atomic = || Atomic((0..g.len()).map(|_| AtomicU64::new(0)).collect());
            let atomics = kernels(&g, &mut atomic(), &mut atomic());
            let mut surface = Part::new(g.len(), g.surface_ranges().flatten());
            let mut interior = Part::new(g.len(), g.interior_ranges().flatten());
            let parts = kernels(&g, &mut surface, &mut interior);
            for (view, [pack, compute, unpack]) in
                [("slice", slice), ("atomic", atomics), ("part", parts)]
            {
                let name = format!("{case}, {view}");
                println!("{name:<28}{init:>9.2}{pack:>11.2}{compute:>11.2}{unpack:>11.2}");
            }
        }
    }
}
