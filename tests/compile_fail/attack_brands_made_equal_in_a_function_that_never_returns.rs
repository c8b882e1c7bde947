//! The expression in `stream!` has the type `!`.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

fn work(world: World) -> ! {
    stream!(let a = world.stream().unwrap());
    stream!(let b = world.stream().unwrap());
    same(&a, &b);
    std::process::exit(0)
}

fn main() {
    drop(work);
}
