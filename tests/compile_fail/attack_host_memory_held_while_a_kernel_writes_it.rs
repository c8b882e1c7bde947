use tidegate::host::prelude::*;

fn check(x: &[f64]) {
    assert!(x.iter().all(|x| x.is_finite()));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    window.range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let mut inbox = inbox;
    let memory = inbox.host_mut(&s)?;
    s.launch(check, inbox.memory())?;
    memory[0] = 2.0;
    drop(outbox);
    Ok(())
}
