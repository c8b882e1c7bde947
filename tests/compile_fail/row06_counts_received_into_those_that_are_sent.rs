use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut all = CountedAllToAll::<f64>::open(&s, "all", 4, 1)?;
    let x = Region::zeroed(&world, 4 * world.size())?.on(&s)?;
    let mut y = Region::zeroed(&world, 4 * world.size())?.on(&s)?;
    let counts = Region::<u64, _>::zeroed(&world, world.size())?.on(&s)?;
    let mut received = Region::zeroed(&world, world.size())?.on(&s)?;
    all.enqueue(&s, &x, &received, &mut y, &mut received)?; // wrong
    // right: all.enqueue(&s, &x, &counts, &mut y, &mut received)?;
    drop(counts);
    Ok(())
}
