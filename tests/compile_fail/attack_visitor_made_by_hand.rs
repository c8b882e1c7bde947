use tidegate::host::Host;
use tidegate::capture::Visitor;

fn main() {
    let mut numbers = Vec::<u64>::new();
    Visitor::<Host>(&mut numbers);
}
