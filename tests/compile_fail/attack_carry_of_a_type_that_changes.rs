//! The type of a field is a macro. The visit would go past the field, by `DerefMut`, and the region would keep its old
//! home.
#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use tidegate::host::prelude::*;
use tidegate_changing::turns;

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
struct Evil<'s> {
    f: turns!(C: u64; Hidden<'s>),
}

fn carried<'s, 't>(a: &Stream<'s>, b: &Stream<'t>, f: Hidden<'s>) -> Result<Hidden<'t>> {
    Ok(a.hand_off(Evil { f }, b)?.f)
}

fn main() {
    drop(carried);
}
