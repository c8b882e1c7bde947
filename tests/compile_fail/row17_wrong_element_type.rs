use tidegate::host::prelude::*;

fn increment(x: &mut [f32]) { // wrong
// right: fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    s.launch(increment, &mut src)?;
    Ok(())
}
