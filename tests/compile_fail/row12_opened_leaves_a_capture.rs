use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let outbox = outbox.open(&s)?.complete(&s)?;
    let inbox = exposed.wait(&s)?;
    let (graph, lent) = s.capture((inbox, outbox), |s, (inbox, outbox)| {
        let exposed = inbox.post(s)?;
        let opened = outbox.open(s)?;
        Ok((exposed.wait(s)?, opened)) // wrong
        // right: let outbox = opened.complete(s)?;
        // right: Ok((exposed.wait(s)?, outbox))
    })?;
    graph.replay(&s, lent, 2)?;
    s.synchronize()
}
