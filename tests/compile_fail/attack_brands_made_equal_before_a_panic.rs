use tidegate::host::prelude::*;

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

fn main() {
    let world: World = World::init().expect("a job of one rank");
    stream!(let a = world.stream().expect("a stream"));
    stream!(let b = world.stream().expect("a stream"));
    same(&a, &b);
    panic!()
}
