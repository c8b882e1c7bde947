use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(
    long: Access<'long, 'static, f64>,
) -> Access<'short, 'static, f64> {
    long
}

fn main() {}
