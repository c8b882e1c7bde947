use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(u8)]
#[allow(dead_code)]
enum Side {
    Left,
    Right,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Side>::zeroed(&world, 4)?;
    Ok(())
}
