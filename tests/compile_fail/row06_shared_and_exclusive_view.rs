use tidegate::host::prelude::*;

fn add(a: &mut [f64], b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += *b);
}

fn check(x: &[f64]) {
    assert!(x.iter().all(|x| x.is_finite()));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut a = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let b = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    s.launch(add, (&mut a, &a))?; // wrong
    // right: s.launch(add, (&mut a, &b))?;
    s.launch(check, &b)?;
    Ok(())
}
