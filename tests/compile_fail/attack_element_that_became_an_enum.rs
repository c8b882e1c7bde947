//! Not all bytes are a variant of the enum.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

#[derive(Element)]
#[tidegate_changing::becomes(
    #[derive(Clone, Copy)]
    #[repr(C)]
    enum Real {
        Number { value: u64 },
        Other,
    }
    use Real::Number;
)]
#[repr(C)]
struct Number {
    value: u64,
}

fn main() {}
