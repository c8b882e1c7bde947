use tidegate::host::prelude::*;
use tidegate::host::OpenedSlots;

fn shorten<'long: 'short, 'short>(
    long: OpenedSlots<'static, 'long, f64>,
) -> OpenedSlots<'static, 'short, f64> {
    long
}

fn main() {}
