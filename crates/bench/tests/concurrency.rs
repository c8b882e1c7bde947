//! `compute` beside `pack` and `unpack`, on two threads, over the same block.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_bench::faces::kernels::{self, Packed, Points, Values};
use tidegate_bench::faces::params::{Counts, Grid, Init, Params, Size, Variant};
use tidegate_bench::faces::verify::Verifier;

/// A block that two threads can reach: always sound, and right only if they keep apart.
#[derive(Clone, Copy)]
struct Shared<'a>(&'a [AtomicU64]);

impl Values for Shared<'_> {
    fn get(&self, index: usize) -> f64 {
        f64::from_bits(self.0[index].load(Relaxed))
    }
}

impl Points for Shared<'_> {
    fn set(&mut self, index: usize, value: f64) {
        self.0[index].store(value.to_bits(), Relaxed);
    }
}

#[test]
fn surface_and_interior_do_not_meet() {
    let params = Params {
        grid: Grid([1, 1, 1]),
        size: Size { m: [4, 3, 4], n: 5 },
        counts: Counts {
            nk: 1,
            nj: 1,
            ni: 200,
        },
        init: Init::Global,
        compute: true,
        variants: vec![Variant::St],
    };
    let verifier = Verifier::new(&params, 0).unwrap();
    let geometry = verifier.geometry();
    let block: Vec<AtomicU64> = (0..geometry.len()).map(|_| AtomicU64::new(0)).collect();
    let mut u = Shared(&block);
    kernels::init(geometry, params.init, &mut u);
    // Neither waits for the other, in any share: with no neighbours, nothing else orders them.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut u = u;
            (0..params.counts.ni).for_each(|_| kernels::compute(geometry, &mut u));
        });
        scope.spawn(|| {
            let mut u = u;
            let mut packed = vec![0.0; geometry.packed_len()];
            for _ in 0..params.counts.ni {
                kernels::pack(geometry, &u, &mut packed);
                kernels::unpack(geometry, &mut u, &Packed::new(geometry, &packed));
            }
        });
    });
    let u: Vec<f64> = (0..geometry.len()).map(|k| u.get(k)).collect();
    let verdict = verifier.check(&u);
    assert!(verdict.passed(), "{verdict}");
}
