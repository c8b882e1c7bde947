use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<bool>::new("w"); // wrong
    // right: let mut window = SlotWindow::<u8>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    window.open(&s)?;
    Ok(())
}
