//! The type of a field is a macro, which expands to another type each time.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;
use tidegate_changing::turns;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Evil {
    r: turns!(R: u64; u64; u64; u64; &'static u64),
}

fn read(world: &World) -> Result<&'static u64> {
    let zero = Region::<Evil>::zeroed(world, 1)?;
    Ok(zero[0].r)
}

fn main() {
    drop(read);
}
