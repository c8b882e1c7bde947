//! A reference lasts as long as the stream's brand, because both have the same lifetime. This does no harm, unless the
//! stream is captured.

use tidegate::host::prelude::*;

struct Solver<'s> {
    s: &'s Stream<'s>,
    x: Region<f64, On<'s>>,
}

impl<'s> Solver<'s> {
    fn new(world: &World, s: &'s Stream<'s>) -> Result<Self> {
        let x = Region::from_slice(world, &[1.0; 4])?.on(s)?;
        Ok(Solver { s, x })
    }

    fn step(&mut self) -> Result<()> {
        self.s.launch(|x: &mut [f64]| x[0] += 1.0, &mut self.x)
    }
}

pub(crate) fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut solver = Solver::new(&world, &s)?;
    solver.step()?;
    stream!(let t = world.stream()?);
    let mut other = Solver::new(&world, &t)?;
    other.step()?;
    other.step()?;
    assert_eq!(solver.x.into_host(&s)?[0], 2.0);
    assert_eq!(other.x.into_host(&t)?[0], 3.0);
    Ok(())
}
