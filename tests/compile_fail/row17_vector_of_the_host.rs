use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_vec(&world, vec![1.0; 4])?.on(&s)?;
    s.launch(|x: &[f64], y: &[f64]| assert_eq!(x, y), (&src, &vec![1.0; 4]))?; // wrong
    // right: let other = std::sync::Arc::new(vec![1.0; 4]);
    // right: s.launch(move |x: &[f64]| assert_eq!(x, &other[..]), &src)?;
    Ok(())
}
