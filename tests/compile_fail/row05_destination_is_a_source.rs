use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let range_0 = window.range_to(0, 0..2);
    let range_1 = window.range_to(0, 2..4);
    let (inbox, outbox) = window.open(&s)?;
    let mut dst = Region::<f64>::zeroed(&world, 2)?.on(&s)?;

    // right: let other = Region::<f64>::zeroed(&world, 2)?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.get(&mut dst, range_0)?;
    epoch.put(&dst, range_1)?; // wrong
    // right: epoch.put(&other, range_1)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
