use tidegate::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = Window::<f64, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut energy = AllReduce::open(&s, "energy", 4)?;
    let mut src = Region::<f64, _>::zeroed(&world, 4)?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, Slot(0))?;
    epoch.complete(&s)?;
    energy.sum(&s, &mut src)?;
    exposed.wait(&s)?;
    Ok(())
}
