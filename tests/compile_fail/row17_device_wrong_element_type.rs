use tidegate::kernel::Function;
use tidegate::prelude::*;
use tidegate::{Cuda};

type Scale = Function<Cuda, (&'static mut [f64], f64)>;

fn program<'s>(s: &Stream<'s, Cuda>, scale: &Scale, x: &mut Region<f32, On<'s, Cuda>>) -> Result<()> {
    s.launch(scale.threads(1000, 256), (x, 2.0))
}

pub fn main() -> Result<()> {
    let _ = program;
    Ok(())
}
