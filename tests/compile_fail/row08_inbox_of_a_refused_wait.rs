use tidegate::Rejected;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    let from = window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let Err(Rejected { value: mut refused, .. }) = exposed.try_wait(&s) else { // wrong
    // right: let Err(Rejected { value: refused, .. }) = exposed.try_wait(&s) else {
        panic!("it was waited for");
    };
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    epoch.complete(&s)?;
    // right: let mut refused = refused.wait(&s)?;
    assert_eq!(refused.read(&s)?.slot(from), [1.0; 4]);
    refused.wait(&s)?; // wrong
    Ok(())
}
