//! Grids of ranks.
//!
//! # Model
//!
//! A [`Cartesian`] is only arithmetic: ranks, coordinates, neighbours, and the block of an array that each rank has. It
//! knows no world, and none of its calls is collective.
//!
//! # Failure
//!
//! A rank or a dimension that the grid does not have is a panic, like an index out of bounds.

use std::ops::Range;

/// A grid of ranks with `N` dimensions (MPI: `MPI_Dims_create` and `MPI_Cart_create`). The last coordinate changes
/// fastest: ranks 0 and 1 differ in it, if that dimension has more than one rank.
///
/// ```
/// use tidegate::Cartesian;
///
/// let grid = Cartesian::<3>::new(12);
/// assert_eq!(grid.dims(), [3, 2, 2]);
/// assert_eq!(grid.coordinates(7), [1, 1, 1]);
/// assert_eq!(grid.shift(7, 0, 1), Some(11));
/// assert_eq!(grid.shift(7, 1, 1), None); // the grid ends there
/// assert_eq!(grid.shift_periodic(7, 1, 1), 5); // its ends meet
/// // Of an array of 10 x 10 x 10 elements, rank 7 has:
/// assert_eq!(grid.block(7, [10, 10, 10]), [3..6, 5..10, 5..10]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cartesian<const N: usize> {
    dims: [usize; N],
}

impl<const N: usize> Cartesian<N> {
    /// A grid for `ranks` ranks, as near to a cube as they allow: the sum of its dimensions is the least there is. So the
    /// blocks of a cube have the least surface, and exchange the fewest elements. Of several such grids, it is the one
    /// whose longest dimension is the shortest. No dimension is longer than the one before it.
    ///
    /// # Panics
    ///
    /// If `ranks` is 0 or more than `u32::MAX`, or if there are several ranks and no dimensions.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// assert_eq!(Cartesian::<3>::new(12).dims(), [3, 2, 2]);
    /// assert_eq!(Cartesian::<2>::new(72).dims(), [9, 8]);
    /// assert_eq!(Cartesian::<2>::new(7).dims(), [7, 1]);
    /// ```
    pub fn new(ranks: usize) -> Self {
        // No job has more ranks, and the divisors of a number up to here are few and found in no time.
        let is_grid = ranks > 0 && u32::try_from(ranks).is_ok();
        assert!(is_grid, "a grid of {ranks} ranks has none, or too many");
        let small = (1..).take_while(|part| part * part <= ranks);
        let small = small.filter(|part| ranks.is_multiple_of(*part));
        let divisors: Vec<usize> = small.flat_map(|part| [part, ranks / part]).collect();
        // Of each divisor, the best grid so far: all dimensions that have not had their turn are 1. A part of a best grid
        // is a best grid itself, so it is enough to remember one.
        let none = |whole: &usize| (*whole == 1).then_some([1; N]);
        let mut best: Vec<_> = divisors.iter().map(none).collect();
        for turn in 0..N {
            let grids = |whole: &usize| {
                let parts = divisors.iter().zip(&best);
                let parts = parts.filter(|(part, _)| whole.is_multiple_of(**part));
                let grids = parts.filter_map(|(part, best)| {
                    let mut dims = (*best)?;
                    dims[turn] = whole / part;
                    dims.sort_unstable_by(|a, b| b.cmp(a));
                    Some(dims)
                });
                grids.min_by_key(|dims| (dims.iter().sum::<usize>(), *dims))
            };
            best = divisors.iter().map(grids).collect();
        }
        // The first small divisor is 1, and the ranks themselves follow it.
        let dims = best[1].expect("a grid of several ranks has dimensions");
        Cartesian { dims }
    }

    /// A grid with the given number of ranks in each dimension.
    ///
    /// # Panics
    ///
    /// If a dimension is 0, or if the product is more than `isize::MAX`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// let grid = Cartesian::with_dims([2, 4]); // of 8 ranks
    /// assert_eq!(grid.coordinates(7), [1, 3]);
    /// ```
    pub fn with_dims(dims: [usize; N]) -> Self {
        let ranks = dims
            .iter()
            .try_fold(1usize, |ranks, dim| ranks.checked_mul(*dim));
        let is_grid = ranks.is_some_and(|ranks| ranks > 0 && isize::try_from(ranks).is_ok());
        assert!(is_grid, "a grid of {dims:?} has no ranks, or too many");
        Cartesian { dims }
    }

    /// The number of ranks in each dimension.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// assert_eq!(Cartesian::<2>::new(6).dims(), [3, 2]);
    /// ```
    pub fn dims(&self) -> [usize; N] {
        self.dims
    }

    /// The coordinates of a rank (MPI: `MPI_Cart_coords`).
    ///
    /// # Panics
    ///
    /// If the grid does not have the rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// let grid = Cartesian::with_dims([2, 3]);
    /// assert_eq!([0, 1, 3].map(|rank| grid.coordinates(rank)), [[0, 0], [0, 1], [1, 0]]);
    /// ```
    pub fn coordinates(&self, rank: usize) -> [usize; N] {
        let ranks: usize = self.dims.iter().product();
        assert!(rank < ranks, "rank {rank} in a grid of {ranks}");
        let (mut rest, mut at) = (rank, [0; N]);
        for (at, dim) in at.iter_mut().zip(self.dims).rev() {
            (*at, rest) = (rest % dim, rest / dim);
        }
        at
    }

    /// The rank at these coordinates (MPI: `MPI_Cart_rank`).
    ///
    /// # Panics
    ///
    /// If a coordinate is beyond the grid.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// let grid = Cartesian::with_dims([2, 3]);
    /// assert_eq!(grid.rank([1, 0]), 3);
    /// ```
    pub fn rank(&self, coordinates: [usize; N]) -> usize {
        self.dims
            .iter()
            .zip(coordinates)
            .fold(0, |rank, (dim, at)| {
                assert!(at < *dim, "{coordinates:?} in a grid of {:?}", self.dims);
                rank * dim + at
            })
    }

    /// The rank that is `by` steps further in a dimension, or before if `by` is negative. `None` if the grid ends
    /// before that (MPI: `MPI_Cart_shift`).
    ///
    /// # Panics
    ///
    /// If the grid does not have the rank or the dimension.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// let grid = Cartesian::with_dims([2, 3]);
    /// assert_eq!(grid.shift(1, 1, 1), Some(2));
    /// assert_eq!(grid.shift(2, 1, 1), None); // the grid ends there
    /// ```
    pub fn shift(&self, rank: usize, dimension: usize, by: isize) -> Option<usize> {
        let mut at = self.coordinates(rank);
        at[dimension] = at[dimension].checked_add_signed(by)?;
        (at[dimension] < self.dims[dimension]).then(|| self.rank(at))
    }

    /// Like [`Cartesian::shift`], in a grid whose ends meet: the first rank of a dimension follows the last one. In a
    /// dimension with one rank, that rank is its own neighbour.
    ///
    /// # Panics
    ///
    /// Like [`Cartesian::shift`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// let grid = Cartesian::with_dims([2, 3]);
    /// assert_eq!(grid.shift_periodic(2, 1, 1), 0);
    /// assert_eq!(grid.shift_periodic(0, 0, -1), 3);
    /// ```
    pub fn shift_periodic(&self, rank: usize, dimension: usize, by: isize) -> usize {
        let (mut at, dim) = (self.coordinates(rank), self.dims[dimension]);
        let by = by.rem_euclid(dim as isize) as usize;
        at[dimension] = (at[dimension] + by) % dim;
        self.rank(at)
    }

    /// The elements of a rank, if an array with these sides is distributed over the grid. Each element belongs to one
    /// rank. In each dimension, the blocks of two ranks differ by at most one element in length.
    ///
    /// # Panics
    ///
    /// If the grid does not have the rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cartesian;
    ///
    /// let grid = Cartesian::with_dims([2, 3]);
    /// assert_eq!(grid.block(4, [10, 10]), [5..10, 3..6]); // of a matrix of 10 x 10 elements
    /// ```
    pub fn block(&self, rank: usize, sides: [usize; N]) -> [Range<usize>; N] {
        let at = self.coordinates(rank);
        // The product can be larger than the number of elements of any array.
        let begin =
            |k: usize, at: usize| (sides[k] as u128 * at as u128 / self.dims[k] as u128) as usize;
        std::array::from_fn(|k| begin(k, at[k])..begin(k, at[k] + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_near_to_cubes() {
        let dims = |ranks| Cartesian::<3>::new(ranks).dims();
        assert_eq!(
            [1, 2, 8, 7].map(dims),
            [[1, 1, 1], [2, 1, 1], [2, 2, 2], [7, 1, 1]]
        );
        assert_eq!(
            [12, 24, 30, 64].map(dims),
            [[3, 2, 2], [4, 3, 2], [5, 3, 2], [4, 4, 4]]
        );
        assert_eq!(Cartesian::<2>::new(36).dims(), [6, 6]);
        assert_eq!(Cartesian::<2>::new(72).dims(), [9, 8]);
        assert_eq!(Cartesian::<1>::new(5).dims(), [5]);
        assert_eq!(Cartesian::<4>::new(1).dims(), [1; 4]);
        // This number has more divisors than all others up to 2^32, and this one is a prime.
        assert_eq!(dims(3_491_888_400), [1540, 1530, 1482]);
        assert_eq!(dims(4_294_967_291), [4_294_967_291, 1, 1]);
    }

    /// Compares with all grids there are.
    #[test]
    fn no_grid_is_nearer_to_a_cube() {
        for ranks in 1..300 {
            let divides = |part: &usize| ranks % part == 0;
            let key = |dims: [usize; 3]| (dims.iter().sum::<usize>(), dims);
            let all = (1..=ranks).filter(divides).flat_map(|x| {
                let pairs = (1..=x).filter(move |y| (ranks / x) % y == 0);
                let grids = pairs.map(move |y| [x, y, ranks / x / y]);
                grids.filter(|[_, y, z]| y >= z)
            });
            let dims = Cartesian::<3>::new(ranks).dims();
            assert_eq!(Some(key(dims)), all.map(key).min());
        }
    }

    #[test]
    fn coordinates_and_neighbours_go_both_ways() {
        let grid = Cartesian::with_dims([3, 1, 4]);
        for rank in 0..12 {
            assert_eq!(grid.rank(grid.coordinates(rank)), rank);
            for dimension in 0..3 {
                let next = grid.shift_periodic(rank, dimension, 1);
                assert_eq!(grid.shift_periodic(next, dimension, -1), rank);
                let dim = grid.dims()[dimension] as isize;
                assert_eq!(grid.shift_periodic(rank, dimension, -2 * dim), rank);
                match grid.shift(rank, dimension, 1) {
                    Some(next) => assert_eq!(grid.shift(next, dimension, -1), Some(rank)),
                    None => assert_eq!(grid.coordinates(rank)[dimension] as isize, dim - 1),
                }
            }
        }
    }

    #[test]
    fn blocks_are_all_of_the_array_once() {
        let (grid, sides) = (Cartesian::with_dims([3, 2]), [7, 5]);
        let mut seen = [[0; 5]; 7];
        for rank in 0..6 {
            let [rows, columns] = grid.block(rank, sides);
            assert!([2, 3].contains(&rows.len()) && [2, 3].contains(&columns.len()));
            for row in rows {
                columns.clone().for_each(|column| seen[row][column] += 1);
            }
        }
        assert_eq!(seen, [[1; 5]; 7]);
    }

    #[test]
    fn blocks_of_the_longest_array_are_all_of_it() {
        let (grid, side) = (Cartesian::with_dims([3]), usize::MAX);
        let blocks = [0, 1, 2].map(|rank| grid.block(rank, [side])[0].clone());
        let third = side / 3;
        assert_eq!(blocks, [0..third, third..2 * third, 2 * third..side]);
    }

    #[test]
    fn what_is_no_grid_panics() {
        for dims in [[2, 0], [usize::MAX, 2], [1 << 62, 2]] {
            let made = std::panic::catch_unwind(|| Cartesian::with_dims(dims));
            assert!(made.is_err(), "{dims:?}");
        }
        for ranks in [0, 1 << 32, usize::MAX] {
            let made = std::panic::catch_unwind(|| Cartesian::<1>::new(ranks));
            assert!(made.is_err(), "{ranks}");
        }
        assert_eq!(Cartesian::with_dims([]).coordinates(0), []);
    }

    #[test]
    #[should_panic(expected = "rank 6 in a grid of 6")]
    fn a_rank_that_there_is_not_panics() {
        Cartesian::with_dims([3, 2]).coordinates(6);
    }
}
