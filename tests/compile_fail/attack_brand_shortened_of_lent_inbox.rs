use tidegate::host::prelude::*;
use tidegate::host::LentInbox;

fn shorten<'long: 'short, 'short: 'b, 'b>(long: LentInbox<'b, 'long, f64>) -> LentInbox<'b, 'short, f64> {
    long
}

fn main() {}
