use tidegate::host::prelude::*;
use tidegate::host::Last;

fn shorten<'long: 'short, 'short: 'b, 'b>(long: Last<'b, 'long, f64>) -> Last<'b, 'short, f64> {
    long
}

fn main() {}
