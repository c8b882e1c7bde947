//! The stream's name is a macro, which expands to one name as a pattern and to another as an expression.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;
use tidegate_changing::turns;

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

fn work(world: World) {
    stream!(let a = world.stream().unwrap());
    stream!(let (turns!(NAME: b; other; b; other)) = world.stream().unwrap());
    same(&a, &b);
    std::process::exit(0)
}

fn main() {
    drop(work);
}
