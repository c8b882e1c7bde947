use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(
    long: Opened<'long, f64>,
) -> Opened<'short, f64> {
    long
}

fn main() {}
