use std::sync::{Arc, Mutex};
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    stream!(let t = world.stream()?);
    let t = Arc::new(Mutex::new(t));
    s.launch(move |_: &mut [f64]| drop(t.lock()), &mut src)?;
    Ok(())
}
