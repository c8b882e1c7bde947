//! The cube, the blocks of the ranks, and a serial step of the whole cube, for comparison.

use std::ops::Range;

use tidegate::Cartesian;

/// The number of elements along an edge of the cube.
pub(crate) const N: usize = 18;
/// The fraction of the difference to a neighbour that an element takes over in a step. It is a power of 2, so that the
/// product is not rounded: a GPU may fuse it with the sum.
const RATE: f64 = 1.0 / 8.0;
/// A block of the cube, with a layer of ghosts around it.
pub(crate) struct Block {
    /// The elements of the cube that the block has, in each dimension.
    of_cube: [Range<usize>; 3],
    /// The size of the block, including ghosts.
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

    /// A layer at index `at` in dimension `k`: all elements that are not ghosts in the other two dimensions.
    pub(crate) fn layer(&self, k: usize, at: usize) -> [Range<usize>; 3] {
        let mut ranges = self.dims.map(|dim| 1..dim - 1);
        ranges[k] = at..at + 1;
        ranges
    }

    /// For each element that is not a ghost, its place in the block and in the cube.
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

/// The temperature at the beginning.
pub(crate) fn start([x, y, z]: [usize; 3]) -> f64 {
    ((x * 7 + y * 5 + z * 3) % 11) as f64 - 5.0 + if x < N / 2 { 4.0 } else { 0.0 }
}

/// The value of an element after a step, from its own value and those of its neighbours. The order of the sums is the
/// same everywhere.
pub(crate) fn heated(here: f64, around: [f64; 6]) -> f64 {
    here + RATE * around.iter().fold(0.0, |sum, beside| sum + (beside - here))
}

/// Makes `steps` steps of the whole cube, one element after the other.
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
