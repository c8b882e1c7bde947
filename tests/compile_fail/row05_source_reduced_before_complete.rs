use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut energy = AllReduce::open(&s, "energy", 4, Op::Sum)?;
    let mut src = Region::<f64, _>::zeroed(&world, 4)?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    energy.enqueue(&s, &mut src)?; // wrong
    epoch.complete(&s)?;
    // right: energy.enqueue(&s, &mut src)?;
    exposed.wait(&s)?;
    Ok(())
}
