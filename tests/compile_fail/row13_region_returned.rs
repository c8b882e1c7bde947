use tidegate::host::prelude::*;

fn made(world: &World) -> Result<Region<f64, On<'static>>> { // wrong
// right: fn made(world: &World) -> Result<Region<f64>> {
    stream!(let s = world.stream()?);
    let src = Region::from_slice(world, &[1.0; 4])?.on(&s)?;
    Ok(src) // wrong
    // right: src.into_host(&s)
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    assert_eq!(made(&world)?.len(), 4);
    Ok(())
}
