use tidegate::generic::{Access, Layout, On, Region};
use tidegate::generic::Device;
use tidegate::host::prelude::*;

fn put<'s, 'b, D: Device, E: Device>(
    epoch: &mut Access<'s, 'b, f64, D, BySlot>,
    src: &'b Region<f64, On<'s, D>>,
    layout: &'b Layout<E>, // wrong
    // right: layout: &'b Layout<D>,
    _world: &tidegate::generic::World<E>,
    to: Out<f64>,
) -> Result<()> {
    epoch.put(src.with(layout)?, to)
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let layout = Layout::strided(0, &[(2, 2)])?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    put(&mut epoch, &src, &layout, &world, to)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
