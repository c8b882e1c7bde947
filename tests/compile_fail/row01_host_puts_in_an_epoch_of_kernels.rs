use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut epoch = outbox.open(&s)?; // wrong
    // right: let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}
