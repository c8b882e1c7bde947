use tidegate::cuda::prelude::*;
use tidegate::cuda::Cuda;
use tidegate::kernel;

kernel! {
    /// # Safety
    ///
    /// The module has such a function.
    unsafe fn finish = "finish"(x: &[f64], out: LastSlots<f64>, to: Out<f64>);
}

fn program<'s>(s: &Stream<'s>, finish: &finish<Cuda>, x: &Region<f64, On<'s>>, opened: &mut Opened<'s, f64>, to: Out<f64>) -> Result<()> {
    s.launch(finish.threads(1000, 256), (x, opened.slots(), to)) // wrong
    // right: s.launch(finish.threads(1000, 256), (x, opened.last(0)?, to))
}

pub fn main() -> Result<()> {
    let _ = program;
    Ok(())
}
