use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let dt = 0.1;
    let (graph, x) = s.capture(x, |s, mut x| {
        s.launch(|x: &mut [f64]| x[0] += dt, &mut x)?;
        Ok(x)
    })?;
    graph.replay(&s, x, 10)?;
    Ok(())
}
