//! `::core` and `::tidegate` are the program. Its trait is the real one, but everything beside it is wrong.
#![forbid(unsafe_code)]

extern crate self as core;
extern crate self as tidegate;
extern crate tidegate as real;

pub use real::Element;

#[allow(unused)]
pub mod mem {
    pub use std::mem::*;
    pub const fn align_of<T>() -> usize {
        8
    }
}
#[macro_export]
macro_rules! nothing {
    ($($t:tt)*) => {
        ()
    };
}
pub use nothing as assert;
pub use nothing as panic;

pub mod option {
    pub use std::option::Option;
}
pub mod element {
    pub const LAYOUT_START: u64 = 0;
    pub const FIELDS: Fields = Fields;
    pub const fn mix(_: u64, _: u64) -> u64 {
        42
    }
    pub struct Fields;
    impl Fields {
        pub const fn field<S, T>(self, _: &str, _: fn(&mut S) -> &mut T) -> Fields {
            self
        }
        pub const fn layout<S>(self, _: fn(&mut S)) -> u64 {
            42
        }
    }
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Padded {
    a: u8,
    b: u64,
}

fn main() {}
