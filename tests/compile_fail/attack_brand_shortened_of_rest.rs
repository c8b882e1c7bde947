use tidegate::host::Host;
use tidegate::window::Rest;

fn shorten<'b, 'long: 'short, 'short: 'b>(
    long: Rest<'b, 'long, f64, Host>,
) -> Rest<'b, 'short, f64, Host> {
    long
}

fn main() {}
