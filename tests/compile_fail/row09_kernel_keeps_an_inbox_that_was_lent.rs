use std::sync::Mutex;

use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    static KEPT: Mutex<usize> = Mutex::new(0);
    static LENT: Mutex<Option<Slots<'static, f64>>> = Mutex::new(None); // wrong
    let kernel = |inbox: KernelInbox<'_, f64>| {
        *LENT.lock().unwrap() = Some(inbox.read()); // wrong
        // right: *KEPT.lock().unwrap() = inbox.read().len();
    };
    s.launch(kernel, inbox.lend())?;
    drop(outbox.lend());
    s.synchronize()?;
    assert_eq!(*KEPT.lock().unwrap(), 0);
    Ok(())
}
