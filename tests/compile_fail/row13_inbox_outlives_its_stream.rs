use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    let mut kept = Vec::new();
    {
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<f64>::new("w");
        window.slot_from(0, 0, 4);
        window.slot_to(0, 0);
        let (inbox, outbox) = window.open(&s)?;
        kept.push(inbox); // wrong
        // right: kept.push(inbox.name().to_owned());
        drop(outbox);
    }
    assert_eq!(kept.len(), 1);
    Ok(())
}
