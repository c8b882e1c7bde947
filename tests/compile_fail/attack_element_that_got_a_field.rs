//! The struct has a field that the derive has not seen.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

#[derive(Element)]
#[tidegate_changing::becomes(
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Number {
        value: u64,
        name: &'static str,
    }
)]
#[repr(C)]
struct Number {
    value: u64,
}

fn main() {}
