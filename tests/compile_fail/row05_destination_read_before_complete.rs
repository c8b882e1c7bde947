use tidegate::host::prelude::*;

fn check(x: &[f64]) {
    assert!(x.iter().all(|x| x.is_finite()));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let range = window.range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let mut dst = Region::<f64>::zeroed(&world, 4)?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.get(&mut dst, range)?;
    s.launch(check, &dst)?; // wrong
    epoch.complete(&s)?;
    // right: s.launch(check, &dst)?;
    exposed.wait(&s)?;
    Ok(())
}
