use tidegate::host::Host;
use tidegate::window::SourceMut;

fn shorten<'b, 'long: 'short, 'short: 'b>(
    long: SourceMut<'b, 'long, f64, Host>,
) -> SourceMut<'b, 'short, f64, Host> {
    long
}

fn main() {}
