use tidegate::host::Host;
use tidegate::window::Memory;

fn shorten<'b, 'long: 'short, 'short: 'b>(
    long: Memory<'b, 'long, f64, Host>,
) -> Memory<'b, 'short, f64, Host> {
    long
}

fn main() {}
