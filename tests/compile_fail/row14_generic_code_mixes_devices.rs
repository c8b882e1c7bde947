use tidegate::generic::{On, Region, Stream};
use tidegate::generic::ClosureDevice;
use tidegate::host::prelude::{Init, World, stream};
use tidegate::host::Host;
use tidegate::Result;

fn step<'s, D: ClosureDevice, E: ClosureDevice>(s: &Stream<'s, D>, x: &mut Region<f64, On<'s, E>>) -> Result<()> { // wrong
// right: fn step<'s, D: ClosureDevice>(s: &Stream<'s, D>, x: &mut Region<f64, On<'s, D>>) -> Result<()> {
    s.launch(|x: &mut [f64]| x[0] += 1.0, x)
}

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    step::<Host, Host>(&s, &mut x) // wrong
    // right: step::<Host>(&s, &mut x)
}
