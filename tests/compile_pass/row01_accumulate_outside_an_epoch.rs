use tidegate::prelude::*;
use tidegate::window::At;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = Window::<f64, _>::atomic("w", 4).target(0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let (at, sum) = (At { rank: 0, first: 0 }, Op::Sum);
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.accumulate(&src, at, sum)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
