//! The struct becomes packed after the derive has seen it, so its fields are no longer aligned.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

#[derive(Element)]
#[tidegate_changing::becomes(
    #[derive(Clone, Copy)]
    #[repr(C, packed)]
    struct Number {
        value: u64,
    }
)]
#[repr(C)]
struct Number {
    value: u64,
}

fn main() {}
