//! The macro says what it must not be once, when the struct itself asks.
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
