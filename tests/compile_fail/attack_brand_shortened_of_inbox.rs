use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Inbox<'long, f64>) -> Inbox<'short, f64> {
    long
}

fn main() {}
