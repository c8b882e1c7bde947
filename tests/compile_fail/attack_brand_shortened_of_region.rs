use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Region<f64, On<'long>>) -> Region<f64, On<'short>> {
    long
}

fn main() {}
