use tidegate::host::prelude::*;
use tidegate::host::LentOutbox;

fn shorten<'long: 'short, 'short: 'b, 'b>(long: LentOutbox<'b, 'long, f64>) -> LentOutbox<'b, 'short, f64> {
    long
}

fn main() {}
