//! Each of two streams is borrowed for as long as its brand lasts, and a region goes from one to the other. Or a stream
//! is still borrowed when its block has ended.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

struct Solver<'s> {
    s: &'s Stream<'s>,
    x: Region<f64, On<'s>>,
}

fn two(world: &World) -> Result<()> {
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let x = Region::from_slice(world, &[1.0])?.on(&a)?;
    let mut mixed = Solver { s: &b, x };
    mixed.s.launch(|x: &mut [f64]| x[0] += 1.0, &mut mixed.x)
}

fn behind(world: &World) -> Result<()> {
    let kept;
    {
        stream!(let s = world.stream()?);
        let x = Region::from_slice(world, &[1.0])?.on(&s)?;
        kept = Solver { s: &s, x };
    }
    kept.s.synchronize()
}

fn moved(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let x = Region::from_slice(world, &[1.0])?.on(&s)?;
    let kept = Solver { s: &s, x };
    drop(s);
    kept.s.synchronize()
}

fn main() {
    drop((two, behind, moved));
}
