//! The attribute makes a struct without such a field, which dereferences to one that has it.
#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use tidegate::host::prelude::*;

#[derive(Clone, Copy)]
struct Inner {
    value: u64,
}

impl Deref for Number {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &Inner { value: 0 }
    }
}
impl DerefMut for Number {
    fn deref_mut(&mut self) -> &mut Inner {
        Box::leak(Box::new(Inner { value: 0 }))
    }
}

#[derive(Element)]
#[tidegate_changing::becomes(
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Number {
        hidden: &'static u64,
    }
)]
#[repr(C)]
struct Number {
    value: u64,
}

fn main() {}
