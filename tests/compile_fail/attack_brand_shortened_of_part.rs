use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Part<f64, On<'long>>) -> Part<f64, On<'short>> {
    long
}

fn main() {}
