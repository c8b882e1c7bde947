use tidegate::generic::{On, Region, Stream};
use tidegate::generic::Device;
use tidegate::host::prelude::*;

fn hand<'s, 't, D: Device, E: Device>( // wrong
// right: fn hand<'s, 't, D: Device>(
    s: &Stream<'s, D>,
    src: Region<f64, On<'s, D>>,
    t: &Stream<'t, E>, // wrong
) -> Result<Region<f64, On<'t, E>>> { // wrong
    // right: t: &Stream<'t, D>,
// right: ) -> Result<Region<f64, On<'t, D>>> {
    s.hand_off(src, t)
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    stream!(let t = world.stream()?);
    hand(&s, src, &t)?;
    Ok(())
}
