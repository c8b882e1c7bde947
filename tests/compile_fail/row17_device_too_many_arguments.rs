use tidegate::kernel::Function;
use tidegate::cuda::prelude::*;
use tidegate::cuda::Cuda;

type Scale = Function<Cuda, (&'static mut [f64], f64)>;

fn program<'s>(s: &Stream<'s>, scale: &Scale, x: &mut Region<f64, On<'s>>) -> Result<()> {
    s.launch(scale.threads(1000, 256), (x, 2.0, 3.0)) // wrong
    // right: s.launch(scale.threads(1000, 256), (x, 2.0))
}

pub fn main() -> Result<()> {
    let _ = program;
    Ok(())
}
