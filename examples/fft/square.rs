//! The square of values, and its spectrum by the definition.

use std::f64::consts::TAU;
use std::ops::Range;

/// The real and the imaginary part.
pub(crate) type Complex = [f64; 2];

/// The rows of the square, and its columns: a power of two. (`examples.cu` has the same number.)
pub(crate) const N: usize = 32;

/// The rows of a rank. Ranks may have different numbers of them.
pub(crate) fn rows(rank: usize, ranks: usize) -> Range<usize> {
    rank * N / ranks..(rank + 1) * N / ranks
}

/// The value at a row and a column.
pub(crate) fn value(row: usize, column: usize) -> Complex {
    let mixed = (row * 31 + column * 17 + row * column) % 23;
    [mixed as f64, (mixed * mixed % 7) as f64]
}

pub(crate) fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// The factors of a transform: for each `k`, e to the power of -2 pi i k / N.
pub(crate) fn factors() -> Vec<Complex> {
    let factor = |k| {
        let (sin, cos) = (TAU * k as f64 / N as f64).sin_cos();
        [cos, -sin]
    };
    (0..N).map(factor).collect()
}

/// The spectrum at a frequency of rows and one of columns, by its definition.
pub(crate) fn direct(by_row: usize, by_column: usize, factors: &[Complex]) -> Complex {
    let mut sum = [0.0; 2];
    for row in 0..N {
        for column in 0..N {
            let turn = times(factors[by_row * row % N], factors[by_column * column % N]);
            let [re, im] = times(turn, value(row, column));
            sum = [sum[0] + re, sum[1] + im];
        }
    }
    sum
}
