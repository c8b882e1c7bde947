use tidegate::generic::Stream;
use tidegate::__private::Guard;
use tidegate::UnboundStream;
use tidegate::generic::Device;
use tidegate::host::prelude::*;

fn twice<'s, D: Device>(
    guard: Guard<'s>,
    a: UnboundStream<D>,
    b: UnboundStream<D>,
) -> (Stream<'s, D>, Stream<'s, D>) {
    (a.bind(guard, "a"), b.bind(guard, "b"))
}

fn main() {
    drop(twice::<tidegate::host::Host>);
}
