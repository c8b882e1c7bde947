use tidegate::host::prelude::*;

fn scale(x: &mut [f64], by: &[f64]) { // wrong
    x.iter_mut().for_each(|x| *x *= by[0]); // wrong
// right: fn scale(x: &mut [f64]) {
    // right: x.iter_mut().for_each(|x| *x *= 2.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    s.launch(scale, (&mut src,))?;
    Ok(())
}
