//! A trait of the program has the methods that the derive calls.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::element::Fields;
use tidegate::host::prelude::*;

trait Lies: Sized {
    fn field<T>(self, _: &str, _: fn(&mut Padded) -> &mut T) -> Self {
        self
    }
    fn layout(self, _: fn(&mut Padded)) -> u64 {
        42
    }
}
impl Lies for Fields<Padded> {}
impl Lies for &Fields<Padded> {}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Padded {
    a: u8,
    b: u64,
}

fn main() {}
