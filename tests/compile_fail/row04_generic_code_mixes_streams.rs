use tidegate::generic::{On, Region, Stream};
use tidegate::generic::ClosureDevice;
use tidegate::host::prelude::{Init, World, stream};
use tidegate::Result;

fn step<'s, 't, D: ClosureDevice>(s: &Stream<'s, D>, x: &mut Region<f64, On<'t, D>>) -> Result<()> { // wrong
// right: fn step<'s, D: ClosureDevice>(s: &Stream<'s, D>, x: &mut Region<f64, On<'s, D>>) -> Result<()> {
    s.launch(|x: &mut [f64]| x[0] += 1.0, x)
}

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    step(&s, &mut x)
}
