//! How many shares stay finite.

use super::{Grid, Init, Size};

/// The largest number of shares in a row after which every value of every rank is finite;
/// `u64::MAX` where no point has two copies, so that nothing ever grows.
///
/// After `K` shares a point with `2^e` copies is `2^(e*K) * a`, with `a` the average of its initial
/// copies, and partial sums are smaller (nothing is negative). For each set of dimensions in which
/// a point may lie between elements, this takes the largest `a` of any point of the domain, and
/// demands `a * 2^(e*K) < 2^1024` with a little room for rounding. Points strictly inside a block
/// are included although they only grow when compute is on: the bound is safe for both, and tight
/// when it is on.
///
/// `grid` and `size` must be valid.
pub fn max_shares(grid: Grid, size: Size, init: Init) -> u64 {
    let last = (size.n - 1) as f64;
    // Weight of an element's and of a point's index, in each dimension.
    let weights = [(1.0, 1e-6), (1e2, 1e-4), (1e4, 1e-2)];
    let mut any = [0.0; 3];
    let mut between = [None; 3];
    for d in 0..3 {
        let (of_element, of_point) = weights[d];
        let (l, m) = (grid.0[d], size.m[d]);
        let all = l * m;
        let highest = match init {
            Init::Same => m - 1,
            Init::Global => all - 1,
        } as f64;
        any[d] = of_element * highest + of_point * last;
        if all > 1 {
            // Two elements side by side: the last point of the lower, and point zero of the upper.
            // With the same values on every rank, the two at a border of blocks are the last and
            // the first element.
            let inside = if init == Init::Global || m > 1 {
                2.0 * highest - 1.0
            } else {
                f64::MIN
            };
            let border = if init == Init::Same && l > 1 {
                highest
            } else {
                f64::MIN
            };
            between[d] = Some((of_element * inside.max(border) + of_point * last) / 2.0);
        }
    }
    let mut limit = u64::MAX;
    for set in 1u32..8 {
        let value: Option<f64> = (0..3)
            .map(|d| {
                if set >> d & 1 == 1 {
                    between[d]
                } else {
                    Some(any[d])
                }
            })
            .sum();
        if let Some(value) = value {
            let room = 1024.0 - (value * (1.0 + 1e-12)).log2();
            limit = limit.min((room / f64::from(set.count_ones())).ceil() as u64 - 1);
        }
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_sizes_allow_about_335() {
        let grid = Grid([2, 2, 2]);
        assert_eq!(max_shares(grid, Size::SMALL, Init::Same), 335);
        assert!((330..340).contains(&max_shares(grid, Size::LARGE, Init::Same)));
    }

    #[test]
    fn fewer_copies_allow_more() {
        let one = Size { m: [1, 1, 1], n: 4 };
        assert_eq!(max_shares(Grid([1, 1, 1]), one, Init::Same), u64::MAX);
        let two = max_shares(Grid([2, 1, 1]), one, Init::Same);
        let four = max_shares(Grid([2, 2, 1]), one, Init::Same);
        assert!(two > 1000 && four > 500 && four < two, "{two} {four}");
    }

    #[test]
    fn global_values_are_larger() {
        let grid = Grid([4, 4, 4]);
        let size = Size { m: [9, 9, 9], n: 3 };
        assert!(max_shares(grid, size, Init::Global) <= max_shares(grid, size, Init::Same));
    }
}
