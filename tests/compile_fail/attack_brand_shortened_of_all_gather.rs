use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: AllGather<'long, f64>) -> AllGather<'short, f64> {
    long
}

fn main() {}
