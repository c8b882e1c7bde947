use tidegate::try_exchange;
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
    let _halves = try_exchange(&s, inbox, epoch).map_err(|refused| refused.error)?; // wrong
    let _halves = try_exchange(&s, inbox, epoch).map_err(|refused| refused.error)?; // wrong
    // right: let (inbox, outbox) = try_exchange(&s, inbox, epoch).map_err(|refused| refused.error)?;
    // right: let _halves = try_exchange(&s, inbox, outbox.start()).map_err(|refused| refused.error)?;
    Ok(())
}
