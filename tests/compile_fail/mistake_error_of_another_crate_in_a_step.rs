use anyhow::Context;
use tidegate::host::prelude::*;

fn main() -> anyhow::Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let (graph, x) = s.capture(x, |s, mut x| {
        s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x).context("a step")?;
        Ok(x)
    })?;
    graph.replay(&s, x, 10)?;
    Ok(())
}
