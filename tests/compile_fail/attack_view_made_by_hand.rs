use tidegate::kernel::{Argument, Lowered};
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let lowered = (&mut src).lower(&s)?;
    let (one, other) = (lowered.view(), lowered.view());
    one.copy_from_slice(other);
    Ok(())
}
