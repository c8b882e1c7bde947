use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[allow(dead_code)]
struct Point {} // wrong
// right: struct Point {
    // right: x: f64,
// right: }

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point>::zeroed(&world, 4)?;
    Ok(())
}
