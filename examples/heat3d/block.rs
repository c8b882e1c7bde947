//! The cube, the ranks' blocks of it, and a step of all of it in one loop, to compare with.

use std::ops::Range;

use tidegate::Cartesian;

/// Elements along an edge of the cube.
pub(crate) const N: usize = 18;
/// How much of the difference to a neighbour an element takes over in a step. It is a power of 2, so that the product is not
/// rounded: GPUs may make one operation of it and the sum.
const RATE: f64 = 1.0 / 8.0;
/// A block of the cube, with a layer of ghosts around it.
pub(crate) struct Block {
    /// The elements of the cube, in each dimension.
    of_cube: [Range<usize>; 3],
    /// The size with ghosts.
    pub(crate) dims: [usize; 3],
}

impl Block {
    pub(crate) fn of(grid: Cartesian<3>, rank: usize) -> Self {
        let of_cube = grid.block(rank, [N; 3]);
        let dims = [0, 1, 2].map(|k| of_cube[k].len() + 2);
        Block { of_cube, dims }
    }

    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        (x * self.dims[1] + y) * self.dims[2] + z
    }

    /// A layer: all elements that are no ghosts in the other two dimensions, at `at` in dimension `k`.
    pub(crate) fn layer(&self, k: usize, at: usize) -> [Range<usize>; 3] {
        let mut ranges = self.dims.map(|dim| 1..dim - 1);
        ranges[k] = at..at + 1;
        ranges
    }

    /// The elements that are no ghosts: where each is in the block, and in the cube.
    pub(crate) fn own(&self) -> impl Iterator<Item = (usize, [usize; 3])> {
        let [xs, ys, zs] = self.dims.map(|dim| 1..dim - 1);
        let places = xs.flat_map(move |x| {
            let zs = zs.clone();
            ys.clone()
                .flat_map(move |y| zs.clone().map(move |z| [x, y, z]))
        });
        let in_cube = |place: [usize; 3]| [0, 1, 2].map(|k| self.of_cube[k].start + place[k] - 1);
        places.map(move |place| (self.index(place), in_cube(place)))
    }
}

/// The temperature at first.
pub(crate) fn start([x, y, z]: [usize; 3]) -> f64 {
    ((x * 7 + y * 5 + z * 3) % 11) as f64 - 5.0 + if x < N / 2 { 4.0 } else { 0.0 }
}

/// What an element becomes in a step, from what it is and its neighbours are. The sums have one order everywhere.
pub(crate) fn heated(here: f64, around: [f64; 6]) -> f64 {
    here + RATE * around.iter().fold(0.0, |sum, beside| sum + (beside - here))
}

/// So many steps of the whole cube, one element after the other.
pub(crate) fn serial(steps: usize) -> Vec<f64> {
    let at = |[x, y, z]: [usize; 3]| (x % N * N + y % N) * N + z % N;
    let cells = || (0..N * N * N).map(|i| [i / (N * N), i / N % N, i % N]);
    let mut u: Vec<f64> = cells().map(start).collect();
    for _ in 0..steps {
        let step = |place: [usize; 3]| {
            let mut around = [0.0; 6];
            for k in 0..3 {
                for (side, by) in [(0, N - 1), (1, 1)] {
                    let mut beside = place;
                    beside[k] += by;
                    around[2 * k + side] = u[at(beside)];
                }
            }
            heated(u[at(place)], around)
        };
        u = cells().map(step).collect();
    }
    u
}
