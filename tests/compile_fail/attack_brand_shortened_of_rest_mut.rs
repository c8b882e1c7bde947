use tidegate::host::Host;
use tidegate::window::RestMut;

fn shorten<'b, 'long: 'short, 'short: 'b>(
    long: RestMut<'b, 'long, f64, Host>,
) -> RestMut<'b, 'short, f64, Host> {
    long
}

fn main() {}
