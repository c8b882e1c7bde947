use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    let kernel = |_: KernelInbox<'_, f64>, _: KernelInbox<'_, f64>| {};
    let mut other = SlotWindow::<f64>::new("other").open(&s)?;
    s.launch(kernel, (inbox.lend(), inbox.lend()))?; // wrong
    // right: s.launch(kernel, (inbox.lend(), other.0.lend()))?;
    drop((outbox.lend(), other.1.lend()));
    s.synchronize()
}
