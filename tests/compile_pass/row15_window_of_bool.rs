use tidegate::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = Window::<u8, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_to(0, 0);
    window.open(&s)?;
    Ok(())
}
