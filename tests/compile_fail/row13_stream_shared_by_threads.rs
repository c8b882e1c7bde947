use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    std::thread::scope(|scope| {
        scope.spawn(|| s.synchronize()); // wrong
        scope.spawn(|| s.synchronize()); // wrong
        // right: scope.spawn(move || s.synchronize());
    });
    Ok(())
}
