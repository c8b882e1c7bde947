use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&a)?;
    let mut src = src; // wrong
    // right: let mut src = a.hand_off(src, &b)?;
    b.launch(increment, &mut src)?;
    Ok(())
}
