use tidegate::host::PairGraph;

fn shorten<'long: 'short, 'short>(
    long: PairGraph<'long, 'static>,
) -> PairGraph<'short, 'static> {
    long
}

fn main() {}
