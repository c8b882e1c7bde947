//! The capture of the stream is refused. Without it the program compiles: see `compile_pass`.
use tidegate::host::prelude::*;

struct Solver<'s> {
    s: &'s Stream<'s>,
    x: Region<f64, On<'s>>,
}

fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let solver = Solver { s: &s, x };
    solver.s.synchronize()?;
    let (_graph, _x) = s.capture(solver.x, |_, x| Ok(x))?;
    Ok(())
}
