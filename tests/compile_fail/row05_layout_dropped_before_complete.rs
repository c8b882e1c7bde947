use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let layout = Layout::strided(0, &[(2, 2)])?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(src.with(&layout)?, to)?;
    drop(layout); // wrong
    epoch.complete(&s)?;
    // right: drop(layout);
    exposed.wait(&s)?;
    Ok(())
}
