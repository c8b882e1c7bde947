// What a team opens belongs to a stream of this rank.
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    let team = world.team("alone", &[world.rank()])?;
    stream!(let s = world.stream()?);
    let mut barrier = Barrier::open(&team, "step")?; // wrong
    // right: let mut barrier = Barrier::open(&team.on(&s), "step")?;
    barrier.enqueue(&s)
}
