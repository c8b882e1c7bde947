use tidegate::__private::{Guard, Id};
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    world.stream()?.bind(Guard::of(&Id::new()), "s");
    Ok(())
}
