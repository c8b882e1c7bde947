use tidegate::cuda::prelude::*;
use tidegate::cuda::Cuda;
use tidegate::kernel;

kernel! {
    /// # Safety
    ///
    /// The module has such a function.
    unsafe fn fill = "fill"(x: &[f64], out: OutSlots<f64>, to: Out<f64>);
}

fn program<'s>(s: &Stream<'s>, fill: &fill<Cuda>, x: &Region<f64, On<'s>>, outbox: Outbox<'s, f64>, to: Out<f64>) -> Result<Outbox<'s, f64>> {
    s.launch(fill.threads(1000, 256), (x, &outbox, to))?; // wrong
    Ok(outbox) // wrong
    // right: let mut opened = outbox.open(s)?;
    // right: s.launch(fill.threads(1000, 256), (x, opened.slots(), to))?;
    // right: opened.complete(s)
}

pub fn main() -> Result<()> {
    let _ = program;
    Ok(())
}
