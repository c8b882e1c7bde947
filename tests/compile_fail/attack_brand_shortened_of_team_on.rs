use tidegate::generic::TeamOn;
use tidegate::host::Host;

fn shorten<'a, 'long: 'short, 'short>(long: TeamOn<'a, 'long, Host>) -> TeamOn<'a, 'short, Host> {
    long
}

fn main() {}
