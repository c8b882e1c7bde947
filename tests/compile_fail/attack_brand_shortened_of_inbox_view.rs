use tidegate::host::Host;
use tidegate::window::InboxView;

fn shorten<'b, 'long: 'short, 'short: 'b>(
    long: InboxView<'b, 'long, f64, Host>,
) -> InboxView<'b, 'short, f64, Host> {
    long
}

fn main() {}
