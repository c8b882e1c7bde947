use tidegate::host::prelude::*;

fn add(a: &mut [f64], b: &mut [f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += *b);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut a = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut b = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    s.launch(add, (&mut a, &mut a))?; // wrong
    // right: s.launch(add, (&mut a, &mut b))?;
    s.launch(add, (&mut b, &mut a))?;
    Ok(())
}
