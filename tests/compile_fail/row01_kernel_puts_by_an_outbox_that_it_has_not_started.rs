use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    let to: Vec<Out<f64>> = outbox.slots().collect();
    let kernel = move |outbox: KernelOutbox<'_, f64>| {
        let mut epoch = outbox; // wrong
        // right: let mut epoch = outbox.start();
        to.iter().for_each(|to| epoch.put_one(*to, 0, 1.0));
        epoch.complete(); // wrong
        // right: epoch.complete();
    };
    s.launch(kernel, outbox.lend())?;
    drop(inbox.lend());
    s.synchronize()
}
