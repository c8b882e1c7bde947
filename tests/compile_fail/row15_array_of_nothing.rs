use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[allow(dead_code)]
struct Point {
    x: [f64; 0], // wrong
    // right: x: [f64; 1],
    y: f64,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point>::zeroed(&world, 4)?;
    Ok(())
}
