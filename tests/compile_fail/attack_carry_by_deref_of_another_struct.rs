//! The attribute makes a struct without such a field, which dereferences to one that has it.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use std::ops::{Deref, DerefMut};
use tidegate::host::prelude::*;

#[derive(Carry)]
struct Hidden<'s> {
    r: Region<u64, On<'s>>,
    n: u64,
}
impl Deref for Hidden<'_> {
    type Target = u64;
    fn deref(&self) -> &u64 {
        &self.n
    }
}
impl DerefMut for Hidden<'_> {
    fn deref_mut(&mut self) -> &mut u64 {
        &mut self.n
    }
}

#[derive(Carry)]
#[tidegate_changing::becomes(
    struct Evil<'s> {
        f: Box<Hidden<'s>>,
    }
)]
struct Evil<'s> {
    f: Hidden<'s>,
}

fn main() {}
