//! The closed form.

use super::verdict::Verdict;
use crate::faces::kernels::{element_offset, initial_value};
use crate::faces::layout::Geometry;
use crate::faces::params::Init;
use std::ops::Range;

/// Blocks of at least so many values are compared by threads: one thread would take some ten milliseconds.
const LARGE: usize = 1 << 20;
/// With more threads, the memory is the limit.
const MOST_THREADS: usize = 16;

/// The terms of a coordinate in one dimension.
#[derive(Debug, Clone, Copy)]
struct Coordinate {
    /// This dimension's part of the initial value, averaged over the one or two copies.
    average: f64,
    /// Whether there are two copies.
    doubled: bool,
    /// Whether it is the first or the last coordinate of the block.
    end: bool,
}

/// The values of one rank's block after a number of shares, from a formula.
///
/// The initial value is a sum of one part for each dimension, and so is the average over all copies
/// of a point. With `2^e` copies (`e` dimensions in which the point lies between elements), the
/// first share makes each of them `2^e` times that average, and each further one multiplies by
/// `2^e`.
#[derive(Debug, Clone)]
pub struct ClosedForm {
    /// By point of the element and element of the block: `j * n + i`.
    coordinates: [Vec<Coordinate>; 3],
    n: usize,
    offset: [usize; 3],
    compute: bool,
    shares: u64,
}

impl ClosedForm {
    /// Prepares the tables: one entry for each coordinate.
    pub fn new(geometry: &Geometry, init: Init, compute: bool, shares: u64) -> ClosedForm {
        let (size, place, grid) = (geometry.size(), geometry.place(), geometry.grid());
        let offset = element_offset(geometry, init);
        let last = size.n - 1;
        let coordinates = [0, 1, 2].map(|d| {
            let (of_element, of_point) = [(1.0, 1e-6), (1e2, 1e-4), (1e4, 1e-2)][d];
            let part = |i: usize, j: usize| of_element * j as f64 + of_point * i as f64;
            let m = size.m[d];
            let mut table = Vec::with_capacity(m * size.n);
            for j in 0..m {
                for i in 0..size.n {
                    // The element on the other side of this point, as its own rank counts.
                    let twin = if i == 0 && j > 0 {
                        Some((last, offset[d] + j - 1))
                    } else if i == last && j + 1 < m {
                        Some((0, offset[d] + j + 1))
                    } else if i == 0 && place[d] > 0 {
                        Some((
                            last,
                            if init == Init::Same {
                                m - 1
                            } else {
                                offset[d] - 1
                            },
                        ))
                    } else if i == last && place[d] + 1 < grid.0[d] {
                        Some((0, if init == Init::Same { 0 } else { offset[d] + m }))
                    } else {
                        None
                    };
                    let own = part(i, offset[d] + j);
                    table.push(Coordinate {
                        average: twin.map_or(own, |(i, j)| (own + part(i, j)) / 2.0),
                        doubled: twin.is_some(),
                        end: (i == 0 && j == 0) || (i == last && j == m - 1),
                    });
                }
            }
            table
        });
        ClosedForm {
            coordinates,
            n: size.n,
            offset,
            compute,
            shares,
        }
    }

    /// The value of point `i` of element `j` of the block.
    ///
    /// # Panics
    ///
    /// When there is no such point.
    #[inline]
    pub fn value(&self, i: [usize; 3], j: [usize; 3]) -> f64 {
        let at = [0, 1, 2].map(|d| self.coordinates[d][j[d] * self.n + i[d]]);
        let doubled = at.iter().filter(|c| c.doubled).count() as u64;
        let summed = self.compute || at.iter().any(|c| c.end);
        if summed && doubled > 0 {
            times_power_of_two(
                at[2].average + at[1].average + at[0].average,
                doubled * self.shares,
            )
        } else {
            initial_value(i, [0, 1, 2].map(|d| j[d] + self.offset[d]))
        }
    }

    /// Compares a block with the formula.
    pub fn check(&self, geometry: &Geometry, u: &[f64]) -> Verdict {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let threads = (processors / geometry.grid().ranks()).clamp(1, MOST_THREADS);
        let threads = if u.len() < LARGE { 1 } else { threads };
        self.check_by(threads, geometry, u)
    }

    /// The same, by so many threads.
    fn check_by(&self, threads: usize, geometry: &Geometry, u: &[f64]) -> Verdict {
        const NAME: &str = "the closed form";
        let elements = geometry.size().elements();
        if threads == 1 || u.len() != geometry.len() {
            return Verdict::compare(geometry, NAME, u, self.values(geometry, 0..elements));
        }
        let (share, cube) = (elements.div_ceil(threads), geometry.size().n.pow(3));
        std::thread::scope(|scope| {
            let parts = u.chunks(share * cube).enumerate().map(|(part, u)| {
                let first = part * share;
                let expected = self.values(geometry, first..elements);
                scope
                    .spawn(move || Verdict::compare_from(geometry, NAME, first * cube, u, expected))
            });
            let parts: Vec<_> = parts.collect();
            let verdicts = parts
                .into_iter()
                .map(|part| part.join().unwrap_or_else(|_| Verdict::none(geometry)));
            verdicts.fold(Verdict::none(geometry), Verdict::and)
        })
    }

    /// The values of some elements, in the order of the block.
    fn values(&self, geometry: &Geometry, elements: Range<usize>) -> impl Iterator<Item = f64> {
        let (n, [mx, my, _]) = (geometry.size().n, geometry.size().m);
        let points = move || {
            (0..n).flat_map(move |iz| (0..n).flat_map(move |iy| (0..n).map(move |ix| [ix, iy, iz])))
        };
        elements.flat_map(move |element| {
            let j = [element % mx, element / mx % my, element / (mx * my)];
            points().map(move |i| self.value(i, j))
        })
    }
}

/// `value * 2^power`, rounded once, also where `2^power` alone would not be finite.
fn times_power_of_two(value: f64, power: u64) -> f64 {
    let half = (power / 2).min(1023);
    let rest = (power - half).min(1023);
    value * f64::from_bits((1023 + half) << 52) * f64::from_bits((1023 + rest) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::params::{Grid, Size};

    #[test]
    fn powers_of_two() {
        assert_eq!(times_power_of_two(1.5, 0), 1.5);
        assert_eq!(times_power_of_two(3.0, 5), 96.0);
        assert_eq!(times_power_of_two(0.75, 1024), 1.5 * 2f64.powi(1023));
        assert_eq!(times_power_of_two(1.0, 5000), f64::INFINITY);
    }

    #[test]
    fn threads_come_to_one_verdict() {
        let size = Size { m: [3, 2, 5], n: 4 };
        let geometry = Geometry::new(Grid([2, 1, 2]), size, 3).unwrap();
        let form = ClosedForm::new(&geometry, Init::Global, true, 3);
        let mut u: Vec<f64> = form.values(&geometry, 0..30).collect();
        for wrong in [None, Some((700, 1.0 + 1e-12)), Some((1919, f64::NAN))] {
            if let Some((index, factor)) = wrong {
                u[index] *= factor;
            }
            let alone = form.check_by(1, &geometry, &u);
            assert_eq!(alone.passed(), wrong.is_none());
            for threads in [2, 7, 16, 40] {
                let together = form.check_by(threads, &geometry, &u);
                assert_eq!(together.to_string(), alone.to_string());
                assert_eq!(together.compared, alone.compared);
            }
        }
        assert!(!form.check_by(4, &geometry, &u[1..]).passed());
    }

    #[test]
    fn by_hand() {
        // Two ranks side by side, one element each: only the common face is shared.
        let size = Size { m: [1; 3], n: 3 };
        let geometry = Geometry::new(Grid([2, 1, 1]), size, 0).unwrap();
        let form = ClosedForm::new(&geometry, Init::Global, false, 2);
        assert_eq!(form.value([0, 0, 0], [0; 3]), 0.0);
        assert_eq!(
            form.value([1, 2, 1], [0; 3]),
            initial_value([1, 2, 1], [0; 3])
        );
        assert_eq!(form.value([2, 0, 0], [0; 3]), 4.0 * (1.0 + 2e-6) / 2.0);
        // With the same values everywhere, the upper copy is element 0 again.
        let form = ClosedForm::new(&geometry, Init::Same, false, 2);
        assert_eq!(form.value([2, 0, 0], [0; 3]), 4.0 * 2e-6 / 2.0);
    }
}
