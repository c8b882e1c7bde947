use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = SlotWindow::<f64>::new("w");
    let (mut inbox, mut outbox) = window.open(&s)?;
    std::thread_local! {
        static KEPT: std::cell::Cell<Option<KernelInbox<'static, f64>>> = const { std::cell::Cell::new(None) }; // wrong
        // right: static KEPT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    let kernel = |inbox: KernelInbox<'_, f64>| {
        KEPT.set(Some(inbox)); // wrong
        // right: KEPT.set(inbox.read().len());
    };
    s.launch(kernel, inbox.lend())?;
    drop(outbox.lend());
    s.synchronize()
}
