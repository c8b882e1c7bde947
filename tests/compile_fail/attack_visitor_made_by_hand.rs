use tidegate::Host;
use tidegate::capture::{Purpose, Visitor};

fn main() {
    let mut numbers = Vec::new();
    Visitor::<Host>(Purpose::Identify(&mut numbers));
}
