use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[allow(dead_code)]
struct Side {
    right: u8,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Side>::zeroed(&world, 4)?;
    Ok(())
}
