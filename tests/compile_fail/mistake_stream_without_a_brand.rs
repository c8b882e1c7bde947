use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    let s = world.stream()?;
    let mut x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    Ok(())
}
