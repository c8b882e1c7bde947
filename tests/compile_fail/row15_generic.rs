use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[allow(dead_code)]
struct Point<T> {
    x: T,
    y: T,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Point<f64>>::zeroed(&world, 4)?;
    Ok(())
}
