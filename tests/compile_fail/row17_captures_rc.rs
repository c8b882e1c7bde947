use std::rc::Rc; // wrong
// right: use std::sync::Arc;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let by = Rc::new(2.0); // wrong
    // right: let by = Arc::new(2.0);
    s.launch(move |x: &mut [f64]| x.fill(*by), &mut src)?;
    Ok(())
}
