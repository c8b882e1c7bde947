use tidegate::host::Host;
use tidegate::window::Source;

fn shorten<'b, 'long: 'short, 'short: 'b>(
    long: Source<'b, 'long, f64, Host>,
) -> Source<'b, 'short, f64, Host> {
    long
}

fn main() {}
