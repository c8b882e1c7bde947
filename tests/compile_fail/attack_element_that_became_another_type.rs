//! The name stands for a struct with the same field and a larger alignment.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

#[derive(Element)]
#[tidegate_changing::becomes(
    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    struct Real<T = u64> {
        value: T,
    }
    type Number = Real;
)]
#[repr(C)]
struct Number {
    value: u64,
}

fn main() {}
