// A window of a team belongs to the stream on which it was opened, like any other.
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    let team = world.split("rows", 0, world.rank())?.expect("all have a color");
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let (inbox, _outbox) = SlotWindow::<f64>::new("halo").open(&team.on(&a))?;
    let _exposed = inbox.post(&b)?; // wrong
    // right: let (_exposed, _b) = (inbox.post(&a)?, b);
    Ok(())
}
