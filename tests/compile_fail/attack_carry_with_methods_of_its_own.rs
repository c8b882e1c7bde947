//! A trait of the program has the methods that the derive calls.
#![forbid(unsafe_code)]
#![allow(dead_code)]

use tidegate::capture::Visitor;
use tidegate::host::prelude::*;

trait Lies: Sized {
    fn enter(self, _: &str) {}
    fn leave(self) {}
    fn field<S, X>(self, _: &str, _: X, _: fn(&mut X, &mut X) -> [X; 1]) {}
}
impl<T> Lies for &mut Visitor<'_, T> where T: tidegate::generic::Device {}

trait Visits: Sized {
    fn visit<V>(self, _: V) {}
}
impl<T> Visits for &mut T {}

#[derive(Carry)]
struct Step<'s> {
    src: Box<Region<f64, On<'s>>>,
}

fn main() {}
