use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&a)?;
    let (graph, src) = a.capture(src, |a, mut src| {
        a.launch(increment, &mut src)?;
        Ok(src)
    })?;
    graph.replay(&b, src, 2)?; // wrong
    // right: graph.replay(&a, src, 2)?;
    Ok(())
}
