use tidegate::host::prelude::*;

fn add(a: &mut [f64], b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += *b);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    window.range_to(0, 0..4);
    let (inbox, _outbox) = window.open(&s)?;
    let mut inbox = inbox;
    let mut b = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    s.launch(add, (&mut b, inbox.memory()))?;
    s.launch(add, (inbox.memory_mut(), inbox.memory()))?; // wrong
    // right: s.launch(add, (inbox.memory_mut(), &b))?;
    Ok(())
}
