//! The struct has constants with the names of the trait's, and so does another trait.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::host::prelude::*;

#[derive(Clone, Copy)]
pub struct Lies;
impl Lies {
    pub const fn field<S, T>(self, _: &str, _: fn(&mut S) -> &mut T) -> Lies {
        self
    }
    pub const fn layout<S>(self, _: fn(&mut S)) -> u64 {
        42
    }
}

impl Padded {
    const FIELDS: Lies = Lies;
    const LAYOUT: u64 = 42;
}

trait Other {
    const FIELDS: Lies = Lies;
    const LAYOUT: u64 = 42;
}
impl<T> Other for T {}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Padded {
    a: u8,
    b: u64,
}

fn main() {}
