use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let values = src.into_host(&s)?.into_vec()?; // wrong
    exchange(&s, inbox, epoch)?;
    // right: let values = src.into_host(&s)?.into_vec()?;
    assert_eq!(values, [1.0; 4]);
    Ok(())
}
