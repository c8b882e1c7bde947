use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point {
    x: f64,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::new("w", 4);
    let target = window.target(0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[Point { x: 1.0 }; 4])?.on(&s)?; // wrong
    // right: let src = Region::from_slice(&world, &[Point { x: 1.0 }.x; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.accumulate(&src, target, Op::Sum)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
