//! `::core::option::Option` is a type of the program, and has no value that a `return` could return.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

extern crate self as core;

pub trait Returns {
    type Out;
}
impl<R> Returns for fn() -> R {
    type Out = R;
}
pub type Never = <fn() -> ! as Returns>::Out;

pub mod option {
    pub enum Option {
        Some(crate::Never),
        None,
    }
}

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

fn work(world: World) {
    stream!(let a = world.stream().unwrap());
    stream!(let b = world.stream().unwrap());
    same(&a, &b);
    std::process::exit(0)
}

fn main() {
    drop(work);
}
