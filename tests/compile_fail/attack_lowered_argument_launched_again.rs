use tidegate::kernel::Argument;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let one = (&mut src).lower(&s)?;
    let copy = |a: &mut [f64], b: &mut [f64]| a.copy_from_slice(b);
    s.launch(copy, (one, one))?;
    Ok(())
}
