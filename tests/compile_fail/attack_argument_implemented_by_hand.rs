use tidegate::host::Host;
use tidegate::kernel::{Argument, Shared};

struct Mine;

impl<'s> Argument<'s, Host> for Mine {
    type Lowered = Shared<f64>;

    fn lower(self) -> Shared<f64> {
        unreachable!()
    }
}

fn main() {}
