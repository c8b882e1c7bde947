use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?;
    let mut at_a = src.on(&a)?;
    a.launch(increment, &mut at_a)?;
    let mut at_b = src.on(&b)?; // wrong
    // right: let mut at_b = a.hand_off(at_a, &b)?;
    b.launch(increment, &mut at_b)?;
    Ok(())
}
