use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    let (from, to) = (window.slot_from(0, 0, 4), window.slot_to(0, 0));
    let (inbox, outbox) = window.open(&s)?;
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(x, to)?;
    let (inbox, _outbox) = exchange(&s, inbox, epoch)?;
    println!("{}", inbox.slot(from)[0]);
    s.launch(|x: &[f64]| println!("{}", x[0]), &inbox)?;
    s.launch(|x: &[f64]| println!("{}", x[0]), inbox.view())?;
    s.launch(|x: &[f64]| println!("{}", x[0]), inbox)?;
    Ok(())
}
