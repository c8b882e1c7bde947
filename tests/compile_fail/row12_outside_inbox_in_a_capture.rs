use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let (_graph, _lent) = s.capture(outbox, |s, outbox| { // wrong
    // right: let (_graph, _lent) = s.capture((inbox, outbox), |s, (inbox, outbox)| {
        let exposed = inbox.post(s)?;
        let outbox = outbox.start().complete(s)?;
        let _inbox = exposed.wait(s)?; // wrong
        Ok(outbox) // wrong
        // right: let inbox = exposed.wait(s)?;
        // right: Ok((inbox, outbox))
    })?;
    Ok(())
}
