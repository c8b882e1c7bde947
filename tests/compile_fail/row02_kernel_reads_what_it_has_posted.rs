use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    let kernel = |inbox: KernelInbox<'_, f64>| {
        let exposed = inbox.post();
        assert!(inbox.read().is_empty()); // wrong
        let inbox = exposed.wait();
        assert!(inbox.read().is_empty());
    };
    s.launch(kernel, inbox.lend())?;
    drop(outbox.lend());
    s.synchronize()
}
