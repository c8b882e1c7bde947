use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    stream!(let t = world.stream()?);
    let kernel = |_: KernelInbox<'_, f64>| {};
    t.launch(kernel, inbox.lend())?; // wrong
    // right: s.launch(kernel, inbox.lend())?;
    drop(outbox.lend());
    t.synchronize()?;
    s.synchronize()
}
