use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut x = Region::from_vec(&world, vec![1.0; 4])?.on(&s)?;
    s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x)?;
    let x = x.into_vec()?; // wrong
    // right: let x = x.into_host(&s)?.into_vec()?;
    assert_eq!(x[0], 2.0);
    Ok(())
}
