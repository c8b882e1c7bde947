use std::sync::Mutex;
use tidegate::host::prelude::*;

static KEPT: Mutex<Option<&'static [f64]>> = Mutex::new(None);

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    let from = window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let keep = move |x: Slots<'_, f64>| *KEPT.lock().expect("nobody panicked") = Some(x.slot(from));
    s.launch(keep, inbox.view())?;
    drop(outbox);
    Ok(())
}
