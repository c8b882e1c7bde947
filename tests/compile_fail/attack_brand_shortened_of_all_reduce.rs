use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: AllReduce<'long, f64>) -> AllReduce<'short, f64> {
    long
}

fn main() {}
