use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    stream!(let c = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&a)?;
    let (graph, lent) = a.capture_with(&mut b, (src, ()), |a, b, (src, ())| {
        let src = a.hand_off(src, b)?;
        Ok((b.hand_off(src, a)?, ()))
    })?;
    graph.replay(&a, &c, lent, 1)?;
    Ok(())
}
