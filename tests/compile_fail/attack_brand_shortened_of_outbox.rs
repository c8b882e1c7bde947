use tidegate::host::prelude::*;

fn shorten<'long: 'short, 'short>(long: Outbox<'long, f64>) -> Outbox<'short, f64> {
    long
}

fn main() {}
