use tidegate::host::prelude::*;

fn none(count: &mut [u64]) {
    count[0] = 0;
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut count = Region::from_slice(&world, &[3])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put_counted(&src, &count, to)?;
    s.launch(none, &mut count)?; // wrong
    epoch.complete(&s)?;
    // right: s.launch(none, &mut count)?;
    exposed.wait(&s)?;
    Ok(())
}
