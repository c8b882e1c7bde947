use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Exposed<'long, f64>) -> Exposed<'short, f64> {
    long
}

fn main() {}
