#[derive(Clone, Copy)]
struct Mine(bool);

impl tidegate::Element for Mine {
    const LAYOUT: u64 = 1;
}

fn main() {
    drop(Mine(true).0);
}
