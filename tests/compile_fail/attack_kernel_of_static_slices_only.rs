use std::sync::Mutex;
use tidegate::host::prelude::*;

static KEPT: Mutex<Option<&'static mut [f64]>> = Mutex::new(None);

fn keep(x: &'static mut [f64]) {
    *KEPT.lock().expect("nobody panicked") = Some(x);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    s.launch(keep, &mut src)?;
    Ok(())
}
