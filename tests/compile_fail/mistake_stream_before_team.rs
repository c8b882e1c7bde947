// The team comes first: it is what all that the call does is about.
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    let team = world.team("alone", &[world.rank()])?;
    stream!(let s = world.stream()?);
    let mut barrier = Barrier::open_in(&s, &team, "step")?; // wrong
    // right: let mut barrier = Barrier::open_in(&team, &s, "step")?;
    barrier.enqueue(&s)
}
