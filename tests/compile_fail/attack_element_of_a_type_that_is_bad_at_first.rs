//! The macro expands to a bad type once, when the struct itself uses it.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;
use tidegate_changing::turns;

#[derive(Element)]
#[repr(C)]
struct Evil {
    r: turns!(R: &'static u64; u64),
}

impl Copy for Evil {}
impl Clone for Evil {
    fn clone(&self) -> Evil {
        *self
    }
}

fn main() {}
