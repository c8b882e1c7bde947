//! The whole domain on one CPU, one point after the other.

use crate::faces::params::{Grid, Init, Size};

/// All elements of all ranks, and shares between them done as plainly as possible: for each point
/// of the domain, find its copies, sum them, write the sum back. There are no messages, blocks
/// matter only for the question which points are on the surface of one, and sums are exact before
/// they are rounded, so that there is no order that matters.
#[derive(Debug, Clone)]
pub struct Domain {
    grid: Grid,
    size: Size,
    /// Elements of the domain in each dimension.
    elements: [usize; 3],
    /// Element by element (x fastest), point by point.
    values: Vec<f64>,
}

/// One copy in one dimension: element of the domain, point of the element.
type Copy1 = (usize, usize);

impl Domain {
    /// Whether simulating this many shares takes less than about a second.
    pub fn is_cheap(grid: Grid, size: Size, shares: u64) -> bool {
        let work = grid
            .0
            .iter()
            .try_fold(size.values(), |all, &l| all.checked_mul(l))
            .map(|all| all as u64);
        work.and_then(|all| all.checked_mul(shares.max(1)))
            .is_some_and(|work| work <= 20_000_000)
    }

    /// The domain with its initial values. `grid` and `size` must be valid.
    ///
    /// # Panics
    ///
    /// When the domain does not fit into memory.
    pub fn new(grid: Grid, size: Size, init: Init) -> Domain {
        let elements = [0, 1, 2].map(|d| grid.0[d] * size.m[d]);
        let mut domain = Domain {
            grid,
            size,
            elements,
            values: vec![0.0; size.values() * grid.ranks()],
        };
        for e in 0..elements.iter().product() {
            let global = [
                e % elements[0],
                e / elements[0] % elements[1],
                e / (elements[0] * elements[1]),
            ];
            let [jx, jy, jz] = match init {
                Init::Global => global,
                Init::Same => [0, 1, 2].map(|d| global[d] % size.m[d]),
            }
            .map(|j| j as f64);
            for p in 0..size.n.pow(3) {
                let [ix, iy, iz] =
                    [p % size.n, p / size.n % size.n, p / size.n.pow(2)].map(|i| i as f64);
                let value = 1e4 * jz + 100.0 * jy + jx + 1e-2 * iz + 1e-4 * iy + 1e-6 * ix;
                domain.values[e * size.n.pow(3) + p] = value;
            }
        }
        domain
    }

    fn index(&self, x: Copy1, y: Copy1, z: Copy1) -> usize {
        let [ex, ey, _] = self.elements;
        let n = self.size.n;
        ((z.0 * ey + y.0) * ex + x.0) * n.pow(3) + (z.1 * n + y.1) * n + x.1
    }

    /// The copies of coordinate `g` (counted without duplicates) of a dimension.
    fn copies(&self, d: usize, g: usize) -> Vec<Copy1> {
        let last = self.size.n - 1;
        let mut copies = Vec::with_capacity(2);
        if g / last < self.elements[d] {
            copies.push((g / last, g % last));
        }
        if g.is_multiple_of(last) && g > 0 {
            copies.push((g / last - 1, last));
        }
        copies
    }

    /// One share; with `compute`, points strictly inside a block are summed too.
    pub fn share(&mut self, compute: bool) {
        let last = self.size.n - 1;
        let at_border = |d: usize, g: usize| g.is_multiple_of(self.size.m[d] * last);
        let copies: [Vec<Vec<Copy1>>; 3] = [0, 1, 2].map(|d| {
            (0..=self.elements[d] * last)
                .map(|g| self.copies(d, g))
                .collect()
        });
        let mut at = Vec::with_capacity(8);
        for (gz, zs) in copies[2].iter().enumerate() {
            for (gy, ys) in copies[1].iter().enumerate() {
                for (gx, xs) in copies[0].iter().enumerate() {
                    if !compute && !at_border(0, gx) && !at_border(1, gy) && !at_border(2, gz) {
                        continue;
                    }
                    at.clear();
                    for &x in xs {
                        for &y in ys {
                            at.extend(zs.iter().map(|&z| self.index(x, y, z)));
                        }
                    }
                    if at.len() > 1 {
                        let sum = exact_sum(at.iter().map(|&k| self.values[k]));
                        at.iter().for_each(|&k| self.values[k] = sum);
                    }
                }
            }
        }
    }

    /// The block of one rank, in the order that the kernels use.
    ///
    /// # Panics
    ///
    /// When the rank is not in the grid.
    pub fn block(&self, rank: usize) -> Vec<f64> {
        assert!(rank < self.grid.ranks(), "there is no rank {rank}");
        let (place, m, each) = (self.grid.place(rank), self.size.m, self.size.n.pow(3));
        let mut block = Vec::with_capacity(self.size.values());
        for jz in 0..m[2] {
            for jy in 0..m[1] {
                for jx in 0..m[0] {
                    let [x, y, z] = [
                        place[0] * m[0] + jx,
                        place[1] * m[1] + jy,
                        place[2] * m[2] + jz,
                    ];
                    let start = self.index((x, 0), (y, 0), (z, 0));
                    block.extend_from_slice(&self.values[start..start + each]);
                }
            }
        }
        block
    }
}

/// The sum of a few values of one sign, with the rounding error of each addition added at the end.
fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0);
    for value in values {
        let next = sum + value;
        // The rounding error of the addition: the sum has the larger operand exactly, and the smaller one in part.
        lost += if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    sum + lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact() {
        assert_eq!(
            exact_sum([1.0, 1e-17, 1e-17, 1e-16].into_iter()),
            1.0 + 1.2e-16
        );
        for s in [0.1, 1.0 / 3.0, f64::EPSILON + 1.0] {
            assert_eq!(exact_sum(std::iter::repeat_n(s, 8)), 8.0 * s);
        }
    }

    #[test]
    fn one_pair_of_elements() {
        let mut domain = Domain::new(Grid([1; 3]), Size { m: [2, 1, 1], n: 3 }, Init::Same);
        domain.share(false);
        let block = domain.block(0);
        assert_eq!(block[2], 1.0 + 2e-6);
        assert_eq!(block[27], block[2]);
        assert_eq!(block[0], 0.0);
        // The point in the middle of the common face is on no surface... of this block: y and z are
        // inside.
        let inside = (3 + 1) * 3 + 2;
        assert_ne!(block[inside], block[27 + inside - 2]);
        domain.share(true);
        let block = domain.block(0);
        assert_eq!(block[inside], block[27 + inside - 2]);
    }
}
