use tidegate::Rejected;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w").buffers(Buffers::Single);
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    // The rank has not posted: it would wait for itself.
    let Err(Rejected { value: epoch, .. }) = epoch.try_complete(&s) else {
        panic!("it was completed");
    };
    s.launch(|x: &mut [f64]| x[0] += 1.0, &mut src)?; // wrong
    exchange(&s, inbox, epoch)?;
    // right: s.launch(|x: &mut [f64]| x[0] += 1.0, &mut src)?;
    Ok(())
}
