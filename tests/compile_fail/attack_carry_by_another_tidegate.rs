//! `::tidegate` is the program. Its trait is the real one, but its visitor sees nothing.
#![forbid(unsafe_code)]
#![allow(dead_code)]

extern crate self as tidegate;
extern crate tidegate as real;

use real::host::prelude::*;

pub use real::host::prelude::Carry;

pub mod host {
    pub use real::host::Host;
}

pub mod capture {
    pub struct Visitor<'a, D>(std::marker::PhantomData<&'a mut D>);
    impl<D> Visitor<'_, D> {
        pub fn enter(&mut self, _: &str) {}
        pub fn leave(&mut self) {}
        pub fn field<S, X>(
            &mut self,
            _: &str,
            _: &mut X,
            _: for<'a, 't> fn(&'a mut crate::Step<'t>, crate::Brand<'t>) -> [&'a mut crate::Src<'t>; 1],
        ) {
        }
    }
}

type Src<'s> = Box<Region<f64, On<'s>>>;
type Brand<'s> = std::marker::PhantomData<fn(&'s ()) -> &'s ()>;

#[derive(Carry)]
struct Step<'s> {
    src: Src<'s>,
}

fn main() {}
