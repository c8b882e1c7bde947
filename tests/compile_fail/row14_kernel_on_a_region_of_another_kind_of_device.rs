use tidegate::generic::{On, Region, Stream};
use tidegate::generic::{ClosureDevice, Device}; // wrong
// right: use tidegate::generic::ClosureDevice;
use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

fn run<'s, D: Device, E: ClosureDevice>( // wrong
// right: fn run<'s, D: ClosureDevice, E: ClosureDevice>(
    _world: &tidegate::generic::World<E>,
    s: &Stream<'s, E>, // wrong
    // right: s: &Stream<'s, D>,
    src: &mut Region<f64, On<'s, D>>,
) -> Result<()> {
    s.launch(increment, src)
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    run(&world, &s, &mut src)?;
    Ok(())
}
