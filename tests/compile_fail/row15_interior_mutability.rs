use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[allow(dead_code)]
struct Point {
    x: std::cell::Cell<f64>, // wrong
    // right: x: f64,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point>::zeroed(&world, 4)?;
    Ok(())
}
