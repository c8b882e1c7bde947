use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let other = vec![2.0; 4];
    let replace = move |x: &mut [f64]| *x = other; // wrong
    // right: let replace = move |x: &mut [f64]| x.copy_from_slice(&other);
    s.launch(replace, &mut src)?;
    Ok(())
}
