use tidegate::host::prelude::*;
use tidegate::host::Host;
use tidegate::generic;
use tidegate::window::Discipline;

fn put<'s, 'b, K: Discipline>( // wrong
    epoch: &mut generic::Access<'s, 'b, f64, Host, K>, // wrong
// right: fn put<'s, 'b>(
    // right: epoch: &mut generic::Access<'s, 'b, f64, Host, BySlot>,
    src: &'b Region<f64, On<'s>>,
    to: Out<f64>,
) -> Result<()> {
    let _: fn() -> &'static str = kind::<K>; // wrong
    // right: let _: fn() -> &'static str = kind::<BySlot>;
    epoch.put(src, to)
}

fn kind<K: Discipline>() -> &'static str {
    std::any::type_name::<K>()
}

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut epoch = outbox.start();
    put(&mut epoch, &src, to)?;
    exchange(&s, inbox, epoch)?;
    Ok(())
}
