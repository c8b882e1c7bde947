use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Stream<'long>) -> Stream<'short> {
    long
}

fn main() {}
