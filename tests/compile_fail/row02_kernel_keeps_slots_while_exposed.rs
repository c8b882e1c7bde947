use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    let kernel = |inbox: KernelInbox<'_, f64>| {
        let slots = inbox.read();
        // right: assert!(slots.is_empty());
        let exposed = inbox.post();
        assert!(slots.is_empty()); // wrong
        exposed.wait();
    };
    s.launch(kernel, inbox.lend())?;
    drop(outbox.lend());
    s.synchronize()
}
