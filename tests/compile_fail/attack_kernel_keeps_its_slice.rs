use std::sync::Mutex;
use tidegate::host::prelude::*;

static KEPT: Mutex<Option<&'static [f64]>> = Mutex::new(None);

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let keep = |x: &[f64]| *KEPT.lock().expect("nobody panicked") = Some(x);
    s.launch(keep, &src)?;
    Ok(())
}
