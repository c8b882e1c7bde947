use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[allow(dead_code)]
struct Point<T> { // wrong
    x: T, // wrong
    y: T, // wrong
// right: struct Point {
    // right: x: f64,
    // right: y: f64,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point<f64>>::zeroed(&world, 4)?; // wrong
    // right: Region::<Point>::zeroed(&world, 4)?;
    Ok(())
}
