use tidegate::host::prelude::*;
fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    let (from, to) = (window.slot_from(0, 0, 4), window.slot_to(0, 0));
    let (mut inbox, outbox) = window.open(&s)?;
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    outbox.put(&x, to)?;
    let inbox = inbox.wait(&s)?;
    let outbox = outbox.complete(&s)?;
    let exposed = inbox.post(&s)?;
    println!("{}", exposed.read(&s)?.slot(from)[0]);
    println!("{}", exposed.slot(from)[0]);
    s.launch(|_: Slots<'_, f64>| (), exposed.view())?;
    Ok(())
}
