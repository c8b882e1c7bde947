use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    std::thread::scope(|scope| {
        scope.spawn(move || s.synchronize());
    });
    Ok(())
}
