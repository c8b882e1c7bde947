use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[allow(dead_code)]
union Point { // wrong
// right: struct Point {
    x: f32,
    y: u32,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point>::zeroed(&world, 4)?;
    Ok(())
}
