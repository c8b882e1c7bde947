use tidegate::generic::{On, Region, Stream};
use tidegate::hal::device::{ClosureDevice, Device};
use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

fn run<'s, D: Device, E: ClosureDevice>(
    _world: &tidegate::generic::World<E>,
    s: &Stream<'s, E>,
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
