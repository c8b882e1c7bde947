//! The program of `fft`, for any device.

use crate::device::Kernels;
use crate::device::prelude::*;
use crate::square::{Complex, N, direct, factors, rows, value};

const REPLAYS: usize = 10;

/// What the transform needs. Each region but the factors has as many values as this rank's rows.
#[derive(Carry)]
struct Transform<'s> {
    factors: Region<Complex, On<'s>>,
    square: Region<Complex, On<'s>>,
    rows: Region<Complex, On<'s>>,
    sent: Region<Complex, On<'s>>,
    received: Region<Complex, On<'s>>,
    spectrum: Region<Complex, On<'s>>,
    transpose: AllToAll<'s, Complex>,
}

impl<'s> Transform<'s> {
    fn open(s: &Stream<'s>) -> Result<Self> {
        let (world, ranks) = (s.world(), s.world().size());
        let mine = rows(world.rank(), ranks);
        // The block for a rank has this rank's rows and that rank's columns. The square is symmetric, and so are the
        // counts.
        let block = |other| mine.len() * rows(other, ranks).len();
        let counts: Vec<_> = (0..ranks).map(block).collect();
        let values = mine.flat_map(|row| (0..N).map(move |column| value(row, column)));
        let values: Vec<_> = values.collect();
        let empty = || Region::zeroed(world, values.len())?.on(s);
        Ok(Transform {
            factors: Region::from_slice(world, &factors())?.on(s)?,
            square: Region::from_slice(world, &values)?.on(s)?,
            rows: empty()?,
            sent: empty()?,
            received: empty()?,
            spectrum: empty()?,
            transpose: AllToAll::open_counts(s, "transpose", &counts, &counts)?,
        })
    }
}

/// Transforms the square: its rows, and then its columns. Nothing here waits.
fn step<'s>(s: &Stream<'s>, k: &Kernels, mut t: Transform<'s>) -> Result<Transform<'s>> {
    k.transform(s, &t.square, &mut t.rows, &t.factors)?;
    k.turn(s, &t.rows, &mut t.sent)?;
    t.transpose.enqueue(s, &t.sent, &mut t.received)?;
    k.join(s, &t.received, &mut t.rows)?;
    k.transform(s, &t.rows, &mut t.spectrum, &t.factors)?;
    Ok(t)
}

pub(crate) fn run() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    assert!(ranks <= N, "each rank needs a row");
    let kernels = Kernels::new(&world)?;
    stream!(let mut s = world.stream()?);
    let transform = Transform::open(&s)?;
    let (recorded, transform) = s.capture(transform, |s, t| step(s, &kernels, t))?;
    let transform = recorded.replay(&s, transform, REPLAYS)?;
    let mine = rows(rank, ranks);
    let mut found = vec![[0.0; 2]; mine.len() * N];
    transform.spectrum.into_host(&s)?.read(0, &mut found)?;

    // What was a column of the square is a row of the spectrum.
    let (mut error, factors) = (0f64, factors());
    for (found, by_column) in found.chunks(N).zip(mine) {
        for (by_row, found) in found.iter().enumerate() {
            let expected = direct(by_row, by_column, &factors);
            error = error.max((found[0] - expected[0]).hypot(found[1] - expected[1]));
        }
    }
    assert!(
        error < 1e-8,
        "the spectrum of rank {rank} is wrong by {error:e}"
    );
    if rank == 0 {
        println!("{ranks} ranks, {N}x{N} values: the spectrum is right");
    }
    Ok(())
}
