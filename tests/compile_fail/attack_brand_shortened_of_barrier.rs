use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Barrier<'long>) -> Barrier<'short> {
    long
}

fn main() {}
