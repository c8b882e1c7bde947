use tidegate::host::prelude::*;

struct Solver<'s> {
    s: Stream<'s>,
    x: Region<f64, On<'s>>,
}

impl<'s> Solver<'s> {
    fn new(world: &World) -> Result<Self> {
        stream!(let s = world.stream()?);
        let x = Region::from_slice(world, &[1.0; 4])?.on(&s)?;
        Ok(Solver { s, x })
    }
}

fn main() -> Result<()> {
    let world = World::init()?;
    Solver::new(&world)?;
    Ok(())
}
