//! A struct with a device among its parameters can be carried on any device, without an attribute.
use tidegate::generic::{Inbox, On, Outbox, Region, Stream};
use tidegate::generic::{Device, HostAccess};
use tidegate::host::prelude::{Carry, Element, Init, Out, Result, SlotWindow, World, exchange, stream};

#[derive(Carry)]
struct Halo<'s, T: Element, D: Device> {
    x: Region<T, On<'s, D>>,
    inbox: Inbox<'s, T, D>,
    outbox: Outbox<'s, T, D>,
    rest: Rest<'s, D>,
}

#[derive(Carry)]
struct Rest<'s, Any>
where
    Any: Device,
{
    parts: Vec<Region<u8, On<'s, Any>>>,
}

fn step<'s, T: Element, D: Device>(
    s: &Stream<'s, D>,
    to: Out<T>,
    mut halo: Halo<'s, T, D>,
) -> Result<Halo<'s, T, D>> {
    let mut epoch = halo.outbox.start();
    epoch.put(&halo.x, to)?;
    (halo.inbox, halo.outbox) = exchange(s, halo.inbox, epoch)?;
    Ok(halo)
}

fn run<'s, D: HostAccess>(
    s: &mut Stream<'s, D>,
    to: Out<f64>,
    halo: Halo<'s, f64, D>,
) -> Result<Halo<'s, f64, D>> {
    let (graph, halo) = s.capture(halo, |s, halo| step(s, to, halo))?;
    graph.replay(s, halo, 3)
}

pub(crate) fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("halo");
    let (from, to) = (window.slot_from(0, 0, 4), window.slot_to(0, 0));
    let (inbox, outbox) = window.open(&s)?;
    let x = Region::from_slice(&world, &[7.0; 4])?.on(&s)?;
    let rest = Rest { parts: Vec::new() };
    let mut halo = run(&mut s, to, Halo { x, inbox, outbox, rest })?;
    assert_eq!(halo.inbox.read(&s)?.slot(from), [7.0; 4]);
    Ok(())
}
