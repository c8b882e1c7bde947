use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: CountedAllToAll<'long, u8>) -> CountedAllToAll<'short, u8> {
    long
}

fn main() {}
