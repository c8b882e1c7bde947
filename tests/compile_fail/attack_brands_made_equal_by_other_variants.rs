//! `Some` and `None` belong to the program, and so does each crate that `stream!` could name.
#![forbid(unsafe_code)]
#![no_implicit_prelude]

extern crate self as tidegate_core;
extern crate self as std;
extern crate self as core;
extern crate self as alloc;
extern crate tidegate as real;

use Choice::*;
use real::host::prelude::{Stream, World, stream};

pub trait Returns {
    type Out;
}
impl<R> Returns for fn() -> R {
    type Out = R;
}

#[allow(dead_code)]
pub enum Choice {
    Some(<fn() -> ! as Returns>::Out),
    None,
}

pub mod option {
    pub use crate::Choice as Option;
}

pub mod __private {
    pub use crate::Choice::*;
}

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

fn work(world: World) {
    let [one, two] = [world.stream(), world.stream()].map(|stream| match stream {
        real::Result::Ok(stream) => stream,
        real::Result::Err(_) => loop {},
    });
    stream!(let a = one);
    stream!(let b = two);
    same(&a, &b);
    loop {}
}

fn main() {
    World::local(1, work);
}
