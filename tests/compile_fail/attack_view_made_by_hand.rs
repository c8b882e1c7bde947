use tidegate::kernel::{Argument, Issues, Lowered, LoweredExclusive};
use tidegate::host::prelude::*;

fn twice(lowered: LoweredExclusive<f64>, stream: &dyn Issues) {
    let (one, other) = (lowered.view(stream), lowered.view(stream));
    one.copy_from_slice(other);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let _lowered = (&mut src).lower(&s)?;
    Ok(())
}
