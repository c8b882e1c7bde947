//! The names that `stream!` binds could be constants of the program.
#![forbid(unsafe_code)]
#![allow(non_upper_case_globals, dead_code)]

use tidegate::host::prelude::*;

const x: () = ();
struct guard;
static unbound: u64 = 0;

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
