//! Every method name that `stream!` could call is also a method of a trait of the program.
#![forbid(unsafe_code)]

use tidegate::generic;
use tidegate::__private::{Guard, Id, StreamsDoNotMix, brand};
use tidegate::UnboundStream;
use tidegate::generic::Device;
use tidegate::host::prelude::*;

trait Other<'s>: Sized {
    fn of(self) -> Guard<'s> {
        loop {}
    }
    fn new(self) -> Id<'s> {
        loop {}
    }
    fn brand(self) -> StreamsDoNotMix<'s> {
        loop {}
    }
    fn bind<D: Device>(self, _: Guard<'s>) -> generic::Stream<'s, D> {
        loop {}
    }
}
impl<'s, T> Other<'s> for T {}

#[allow(dead_code)]
trait Leaks<'s> {
    fn leaked(self) -> StreamsDoNotMix<'s>;
}
impl<'s> Leaks<'s> for Id<'s> {
    fn leaked(self) -> StreamsDoNotMix<'s> {
        brand(Box::leak(Box::new(self)))
    }
}

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

fn work(world: World) {
    let unbound: UnboundStream<tidegate::host::Host> = world.stream().unwrap();
    stream!(let a = unbound);
    stream!(let b = world.stream().unwrap());
    same(&a, &b);
    std::process::exit(0)
}

fn main() {
    drop(work);
}
