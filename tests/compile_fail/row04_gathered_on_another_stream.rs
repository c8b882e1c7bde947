use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let mut all = AllGather::open(&b, "all", 1)?;
    let x = Region::<f64, _>::zeroed(&world, 1)?.on(&a)?; // wrong
    // right: let x = Region::<f64, _>::zeroed(&world, 1)?.on(&b)?;
    let mut y = Region::zeroed(&world, world.size())?.on(&b)?;
    all.enqueue(&b, &x, &mut y)?;
    Ok(())
}
