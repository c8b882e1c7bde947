//! The fields of the struct are aligned no more, after the derive has seen that they are.
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
