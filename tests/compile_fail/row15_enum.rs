use tidegate::host::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(u8)] // wrong
// right: #[repr(C)]
#[allow(dead_code)]
enum Side { // wrong
    Left, // wrong
    Right, // wrong
// right: struct Side {
    // right: right: u8,
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Side>::zeroed(&world, 4)?;
    Ok(())
}
