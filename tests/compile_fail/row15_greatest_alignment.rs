use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C, align(128))] // wrong
// right: #[repr(C, align(64))]
#[allow(dead_code)]
struct Point {
    x: [u64; 12], // wrong
    // right: x: [u64; 4],
    y: [u64; 4],
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point>::zeroed(&world, 4)?;
    Ok(())
}
