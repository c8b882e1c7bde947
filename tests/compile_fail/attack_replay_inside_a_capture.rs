use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let (graph, src) = s.capture(src, |_, src| Ok(src))?;
    s.capture(src, |s, src| Ok(graph.replay(s, src, 1)?))?;
    Ok(())
}
