use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut all = AllGather::open(&s, "all", 1)?;
    let mut y = Region::<f64, _>::zeroed(&world, world.size())?.on(&s)?;
    all.enqueue(&s, &y, &mut y)?; // wrong
    // right: all.enqueue_in_place(&s, &mut y)?;
    Ok(())
}
