use tidegate::generic::{On, OnHost, Region, Stream};
use tidegate::generic::Device;
use tidegate::host::prelude::*;

fn bring<'s, D: Device, E: Device>( // wrong
// right: fn bring<'s, D: Device>(
    src: Region<f64, OnHost<D>>,
    s: &Stream<'s, E>, // wrong
) -> Result<Region<f64, On<'s, E>>> { // wrong
    // right: s: &Stream<'s, D>,
// right: ) -> Result<Region<f64, On<'s, D>>> {
    src.on(s)
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    bring(Region::from_slice(&world, &[1.0; 4])?, &s)?;
    Ok(())
}
