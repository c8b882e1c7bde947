use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let here = vec![2.0; 4];
    let values = &here[..]; // wrong
    s.launch(move |x: &mut [f64]| x.copy_from_slice(values), &mut src)?; // wrong
    // right: s.launch(move |x: &mut [f64]| x.copy_from_slice(&here), &mut src)?;
    Ok(())
}
