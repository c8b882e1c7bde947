use tidegate::Host;
use tidegate::capture::PairGraph;

fn shorten<'long: 'short, 'short>(
    long: PairGraph<'long, 'static, Host>,
) -> PairGraph<'short, 'static, Host> {
    long
}

fn main() {}
