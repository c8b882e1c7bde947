use std::sync::Mutex;
use tidegate::host::prelude::*;

static KEPT: Mutex<Option<Stream<'static>>> = Mutex::new(None); // wrong
// right: static KEPT: Mutex<Option<World>> = Mutex::new(None);

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    *KEPT.lock().expect("nobody panicked") = Some(s); // wrong
    // right: *KEPT.lock().expect("nobody panicked") = Some(s.world().clone());
    drop(KEPT.lock().expect("nobody panicked").take());
    Ok(())
}
