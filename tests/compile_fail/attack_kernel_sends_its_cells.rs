use std::sync::mpsc::channel;
use tidegate::host::prelude::*;
use tidegate::{CellsMut, IndexSet};

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let [mut part] = src.partition([IndexSet::from_ranges([0..4])?])?;
    let (sender, receiver) = channel();
    let send = move |x: CellsMut<'_, f64>| sender.send(x).expect("somebody listens");
    s.launch(send, &mut part)?;
    drop(receiver.recv());
    Ok(())
}
