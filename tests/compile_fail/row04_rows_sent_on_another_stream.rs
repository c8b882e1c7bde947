use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let mut all = CountedAllToAll::<f64>::open(&b, "all", 4, 1)?;
    let x = Region::zeroed(&world, 4 * world.size())?.on(&b)?;
    let mut y = Region::zeroed(&world, 4 * world.size())?.on(&b)?;
    let counts = Region::zeroed(&world, world.size())?.on(&a)?; // wrong
    // right: let counts = Region::zeroed(&world, world.size())?.on(&b)?;
    let mut received = Region::zeroed(&world, world.size())?.on(&b)?;
    all.enqueue(&b, &x, &counts, &mut y, &mut received)?;
    Ok(())
}
