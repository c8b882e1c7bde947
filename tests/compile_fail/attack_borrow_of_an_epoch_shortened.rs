use tidegate::host::prelude::*;

fn shorten<'s, 'long: 'short, 'short>(long: Access<'s, 'long, f64>) -> Access<'s, 'short, f64> {
    long
}

fn main() {}
