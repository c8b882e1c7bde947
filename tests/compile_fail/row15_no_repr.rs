use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
// right: #[repr(C)]
#[allow(dead_code)]
struct Point {
    x: u64,
    y: u64,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point>::zeroed(&world, 4)?;
    Ok(())
}
