use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let captured = s.try_capture((), |s, ()| s.launch(|x: &mut [f64]| x[0] += 1.0, &mut src)); // wrong
    // right: s.launch(|x: &mut [f64]| x[0] += 1.0, &mut src)?;
    // right: let captured = s.try_capture(src, |s, mut x| s.launch(|x: &mut [f64]| x[0] += 1.0, &mut x).map(|()| x));
    assert!(captured.is_ok());
    Ok(())
}
