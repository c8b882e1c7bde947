use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    let kernel = |_: KernelInbox<'_, f64>| {};
    let mut exposed = inbox.post(&s)?; // wrong
    s.launch(kernel, exposed.lend())?; // wrong
    // right: s.launch(kernel, inbox.lend())?;
    // right: let exposed = inbox.post(&s)?;
    exposed.wait(&s)?;
    drop(outbox.lend());
    s.synchronize()
}
