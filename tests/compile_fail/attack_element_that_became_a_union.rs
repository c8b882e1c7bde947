//! The union's other field does not allow all bytes.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

#[derive(Element)]
#[tidegate_changing::becomes(
    #[derive(Clone, Copy)]
    #[repr(C)]
    union Number {
        value: u64,
    }
)]
#[repr(C)]
struct Number {
    value: u64,
}

fn main() {}
