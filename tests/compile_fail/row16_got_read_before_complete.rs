use tidegate::host::prelude::*;

fn check(x: &[f64]) {
    assert!(x.iter().all(|x| x.is_finite()));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<f64>::new("w", 4);
    let at = window.target(0);
    let (inbox, outbox) = window.open(&s)?;
    let mut old = Region::<f64>::zeroed(&world, 4)?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.get(&mut old, at)?;
    s.launch(check, &old)?; // wrong
    epoch.complete(&s)?;
    // right: s.launch(check, &old)?;
    exposed.wait(&s)?;
    Ok(())
}
