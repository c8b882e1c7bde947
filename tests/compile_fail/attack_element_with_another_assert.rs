use tidegate::host::prelude::*;

macro_rules! assert {
    ($($anything:tt)*) => {};
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Padded {
    small: u8,
    large: u32,
}

fn main() {}
