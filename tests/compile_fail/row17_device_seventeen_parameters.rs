use tidegate::cuda::prelude::*;
use tidegate::cuda::Cuda;
use tidegate::kernel;

kernel! {
    /// # Safety
    ///
    /// The module has such a function.
    unsafe fn many = "many"(
        a: &mut [f64], b: &[f64], c: &[f64], d: &[f64], e: &[f64], f: &[f64], g: &[f64], h: &[f64],
        i: &[f64], j: &[f64], k: &[f64], l: &[f64], m: &[f64], n: &[f64], o: &[f64], by: f64, and: f64 // wrong
        // right: i: &[f64], j: &[f64], k: &[f64], l: &[f64], m: &[f64], n: &[f64], o: &[f64], by: f64
    );
}

fn program<'s>(s: &Stream<'s>, many: &many<Cuda>, x: &mut Region<f64, On<'s>>, y: &Region<f64, On<'s>>) -> Result<()> {
    s.launch(many.threads(1000, 256), (x, y, y, y, y, y, y, y, y, y, y, y, y, y, y, 2.0, 3.0)) // wrong
    // right: s.launch(many.threads(1000, 256), (x, y, y, y, y, y, y, y, y, y, y, y, y, y, y, 2.0))
}

pub fn main() -> Result<()> {
    let _ = program;
    Ok(())
}
