//! A two-dimensional Fourier transform of a square whose rows are distributed over all ranks.
//!
//! Each rank transforms its rows. An all-to-all then transposes the square: each rank sends to each rank the part of
//! its rows that lies in the other's columns. Each rank transforms its columns, which lie in its memory as rows now.
//! All of it is enqueued, recorded once, and replayed. Each rank compares its part of the spectrum with a direct sum
//! over the square.
//!
//! Run it with `cargo run --example fft`, or on 3 ranks: `cargo run -p tidegate-cli -- run -n 3
//! target/debug/examples/fft`.

use std::f64::consts::TAU;
use std::ops::Range;
use tidegate::host::prelude::*;

/// The real and the imaginary part.
type Complex = [f64; 2];

/// The rows of the square, and its columns: a power of two.
const N: usize = 32;

/// The rows of a rank. Ranks may have different numbers of them.
fn rows(rank: usize, ranks: usize) -> Range<usize> {
    rank * N / ranks..(rank + 1) * N / ranks
}

/// The value at a row and a column.
fn value(row: usize, column: usize) -> Complex {
    let mixed = (row * 31 + column * 17 + row * column) % 23;
    [mixed as f64, (mixed * mixed % 7) as f64]
}

fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// The factor of a frequency at a place, of `n`.
fn factor(frequency: usize, place: usize, n: usize) -> Complex {
    let (sin, cos) = (TAU * (frequency * place % n) as f64 / n as f64).sin_cos();
    [cos, -sin]
}

/// Transforms a row, in place: its even and its odd places first, and then both together.
fn transform(row: &mut [Complex]) {
    let n = row.len();
    if n == 1 {
        return;
    }
    let [even, odd] = [0, 1].map(|first| {
        let mut half: Vec<_> = row.iter().skip(first).step_by(2).copied().collect();
        transform(&mut half);
        half
    });
    for (k, (a, b)) in even.into_iter().zip(odd).enumerate() {
        let b = times(factor(k, 1, n), b);
        row[k] = [a[0] + b[0], a[1] + b[1]];
        row[k + n / 2] = [a[0] - b[0], a[1] - b[1]];
    }
}

/// The spectrum at a frequency of rows and one of columns, by its definition.
fn direct(by_row: usize, by_column: usize) -> Complex {
    let mut sum = [0.0; 2];
    for row in 0..N {
        for column in 0..N {
            let turn = times(factor(by_row, row, N), factor(by_column, column, N));
            let [re, im] = times(turn, value(row, column));
            sum = [sum[0] + re, sum[1] + im];
        }
    }
    sum
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    assert!(ranks <= N, "each rank needs a row");
    let mine = rows(rank, ranks);
    let count = mine.len();

    stream!(let mut s = world.stream()?);
    // The block for a rank has this rank's rows and that rank's columns. The square is symmetric, and so are the
    // counts.
    let counts: Vec<_> = (0..ranks)
        .map(|other| count * rows(other, ranks).len())
        .collect();
    let transpose = AllToAll::open_counts(&s, "transpose", &counts, &counts)?;
    let values: Vec<_> = mine
        .clone()
        .flat_map(|row| (0..N).map(move |column| value(row, column)))
        .collect();
    let square = Region::from_slice(&world, &values)?.on(&s)?;
    let [sent, received, spectrum] =
        [(); 3].map(|()| Region::<Complex, _>::zeroed(&world, count * N));
    let lent = (
        transpose,
        square,
        sent?.on(&s)?,
        received?.on(&s)?,
        spectrum?.on(&s)?,
    );

    // Transforms the rows, and writes each block column by column: a column is a row of the rank that gets it.
    let before = move |square: &[Complex], sent: &mut [Complex]| {
        for (at, row) in square.chunks(N).enumerate() {
            let mut row = row.to_vec();
            transform(&mut row);
            for (column, value) in row.into_iter().enumerate() {
                sent[column * count + at] = value;
            }
        }
    };
    // Each block has this rank's rows, one behind the other, of which it is a part.
    let behind = move |received: &[Complex], spectrum: &mut [Complex]| {
        let mut rest = received;
        for other in 0..ranks {
            let part = rows(other, ranks);
            let (block, more) = rest.split_at(count * part.len());
            rest = more;
            for (row, values) in spectrum.chunks_mut(N).zip(block.chunks(part.len())) {
                row[part.clone()].copy_from_slice(values);
            }
        }
        spectrum.chunks_mut(N).for_each(transform);
    };
    let (step, lent) = s.capture(lent, |s, lent| {
        let (mut transpose, square, mut sent, mut received, mut spectrum) = lent;
        s.launch(before, (&square, &mut sent))?;
        transpose.enqueue(s, &sent, &mut received)?;
        s.launch(behind, (&received, &mut spectrum))?;
        Ok((transpose, square, sent, received, spectrum))
    })?;
    let (.., spectrum) = step.replay(&s, lent, 10)?;

    // What was a column of the square is a row of the spectrum.
    let mut error = 0f64;
    for (found, by_column) in spectrum.into_host(&s)?.chunks(N).zip(mine) {
        for (by_row, found) in found.iter().enumerate() {
            let expected = direct(by_row, by_column);
            error = error.max((found[0] - expected[0]).hypot(found[1] - expected[1]));
        }
    }
    let errors = world.all_gather_elements("error", &[error])?;
    let worst = errors.into_iter().flatten().fold(0.0, f64::max);
    assert!(worst < 1e-8, "the spectrum is wrong by {worst:e}");
    if rank == 0 {
        println!("{ranks} ranks, {N}x{N} values: the spectrum is right, largest error {worst:.1e}");
    }
    Ok(())
}
