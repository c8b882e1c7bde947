use tidegate::host::Host;
use tidegate::kernel::{Argument, LoweredShared};

struct Mine;

impl<'s> Argument<'s, Host> for Mine {
    type Lowered = LoweredShared<f64>;

    fn lower(self) -> LoweredShared<f64> {
        unreachable!()
    }
}

fn main() {}
