//! `::tidegate` is the program: its trait is the real one, and its visitor sees nothing.
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
        pub fn field<S, X, F>(&mut self, _: &str, _: &mut X, _: F) {}
    }
}

#[derive(Carry)]
struct Step<'s> {
    src: Box<Region<f64, On<'s>>>,
}

fn main() {}
