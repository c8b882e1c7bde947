use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point {
    x: f64,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut x = Region::from_slice(&world, &[Point { x: 1.0 }; 4])?.on(&s)?; // wrong
    // right: let mut x = Region::from_slice(&world, &[[Point { x: 1.0 }.x]; 4])?.on(&s)?;
    AllReduce::once(&s, &mut x, Op::Sum)?;
    Ok(())
}
