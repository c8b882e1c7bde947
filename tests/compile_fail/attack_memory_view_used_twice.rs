use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    window.range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let mut inbox = inbox;
    let memory = inbox.memory_mut();
    let copy = |a: &mut [f64], b: &mut [f64]| a.copy_from_slice(b);
    s.launch(copy, (memory, memory))?;
    drop(outbox);
    Ok(())
}
