use tidegate::host::Host;
use tidegate::window::MemoryMut;

fn shorten<'b, 'long: 'short, 'short: 'b>(
    long: MemoryMut<'b, 'long, f64, Host>,
) -> MemoryMut<'b, 'short, f64, Host> {
    long
}

fn main() {}
