use tidegate::cuda::prelude::*;
use tidegate::cuda::Cuda;
use tidegate::kernel;

kernel! {
    /// # Safety
    ///
    /// The module has such a function.
    unsafe fn fill = "fill"(x: &[f64], out: OutRanges<f64>, to: Out<f64>);
}

fn program<'s>(
    s: &Stream<'s>,
    fill: &fill<Cuda>,
    x: &Region<f64, On<'s>>,
    opened: &mut Opened<'s, f64>, // wrong
    // right: opened: &mut Opened<'s, f64, ByRange>,
    to: Out<f64>,
) -> Result<()> {
    s.launch(fill.threads(1000, 256), (x, opened.slots(), to)) // wrong
    // right: s.launch(fill.threads(1000, 256), (x, opened.ranges(), to))
}

pub fn main() -> Result<()> {
    let _ = program;
    Ok(())
}
