use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&a)?;
    a.capture_with(&mut b, (src, ()), |a, b, (src, ())| Ok((a.hand_off(src, b)?, ())))?;
    Ok(())
}
