use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Graph<'long>) -> Graph<'short> {
    long
}

fn main() {}
