//! The length of an array is a macro. There is padding behind the array, but not where the derive looks.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;
use tidegate_changing::turns;

#[derive(Element)]
#[repr(C)]
struct Padded {
    a: [u8; turns!(N: 1; 8)],
    b: u64,
}

impl Copy for Padded {}
impl Clone for Padded {
    fn clone(&self) -> Padded {
        *self
    }
}

fn main() {}
